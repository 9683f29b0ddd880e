# headroom_embed(TARGET FILE SYMBOL)
#
# Puts the text of FILE into TARGET as `extern const std::string_view SYMBOL` (declare it where it
# is used, in namespace headroom::embedded), so that the program works from anywhere and starts
# without looking for the file. Run as a script (cmake -P) it writes that source file.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ "${INPUT}" text)
  file(WRITE "${OUTPUT}"
    "#include <string_view>\n\nnamespace headroom::embedded {\n\n"
    "extern const std::string_view ${SYMBOL};\n"
    "const std::string_view ${SYMBOL} = R\"embedded_text(${text})embedded_text\";\n\n}  // namespace headroom::embedded\n")
  return()
endif()

set(headroom_embed_script ${CMAKE_CURRENT_LIST_FILE})
function(headroom_embed target file symbol)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cpp)
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${file} -DOUTPUT=${source} -DSYMBOL=${symbol} -P ${headroom_embed_script}
    DEPENDS ${file} ${headroom_embed_script}
    COMMENT "Embedding ${file}" VERBATIM)
  target_sources(${target} PRIVATE ${source})
endfunction()
