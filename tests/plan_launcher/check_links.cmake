if(NOT LINKED STREQUAL "tessera_base,tessera_runtime")
  message(FATAL_ERROR "plan_launcher links ${LINKED}: it must do with tessera_base and tessera_runtime")
endif()
