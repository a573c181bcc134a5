// Everything: #include <convgrad/convgrad.hpp>
#pragma once

#include <convgrad/convert.hpp>
#include <convgrad/eager.hpp>
#include <convgrad/engine.hpp>
#include <convgrad/error.hpp>
#include <convgrad/explain.hpp>
#include <convgrad/formats.hpp>
#include <convgrad/graph.hpp>
#include <convgrad/op.hpp>
#include <convgrad/op_kind.hpp>
#include <convgrad/tensor.hpp>
#include <convgrad/types.hpp>
#include <convgrad/version.hpp>
