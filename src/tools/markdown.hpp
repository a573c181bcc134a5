// Texts made from the schema table: for the command and the documentation, not part of the library.
#pragma once

#include <string>
#include <vector>

#include "op/schema.hpp"

namespace convgrad::ops {

/// How the shape of the output is found, and the meaning of each value of auto_pad: paragraphs and
/// list items, each a line.
std::vector<std::string> shape_text(const op_schema &schema);
std::vector<std::string> auto_pad_text(const op_schema &schema);

/// The page docs/ops/<Name>.md, whole.
std::string markdown_page(const op_schema &schema);

}  // namespace convgrad::ops
