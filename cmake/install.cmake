# What `cmake --install` puts where: library, headers, command, CMake package, pkg-config file.
include(CMakePackageConfigHelpers)

install(TARGETS convgrad EXPORT convgradTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/convgrad" "${CMAKE_BINARY_DIR}/include/convgrad"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.hpp")
if(TARGET convgrad_cuda)
  install(TARGETS convgrad_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" NAMELINK_SKIP)
endif()
if(CONVGRAD_BUILD_CLI)
  install(TARGETS convgrad_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/README.md"
  "${PROJECT_SOURCE_DIR}/sbom.cdx.json"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}")

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/convgrad")
configure_package_config_file(cmake/convgradConfig.cmake.in
  "${CMAKE_BINARY_DIR}/cmake/convgradConfig.cmake" INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a minor version may break: 0.2 does not satisfy a request for 0.1.
write_basic_package_version_file("${CMAKE_BINARY_DIR}/cmake/convgradConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(EXPORT convgradTargets NAMESPACE convgrad:: DESTINATION "${package_dir}")
install(FILES "${CMAKE_BINARY_DIR}/cmake/convgradConfig.cmake"
  "${CMAKE_BINARY_DIR}/cmake/convgradConfigVersion.cmake" DESTINATION "${package_dir}")

# The prefix is taken from where the file lies, so an installed tree may be moved.
set(pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
file(RELATIVE_PATH pkgconfig_to_prefix "/prefix/${pkgconfig_dir}" "/prefix")
configure_file(cmake/convgrad.pc.in "${CMAKE_BINARY_DIR}/cmake/convgrad.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/cmake/convgrad.pc" DESTINATION "${pkgconfig_dir}")
