# By hand; a test compares the names with the header's.

from _cffi_backend import FFI, _CDataBase

class _Lib:
    PP_FILE: int
    PP_HEAD: int
    PP_ROW_ELSEWHERE: int
    PP_ROW_OFFLINE: int
    PP_ROW_REBASED: int
    PP_ROW_SAMPLED: int
    PP_ROW_UNPINNED: int
    PP_ROW_WIDE: int
    PP_STAMP_RAW: int
    PP_STAMP_TSC: int

    def pp_attach(
        self,
        s: _CDataBase,
        cpu: int,
        flags: int,
        rows: _CDataBase,
        n_rows: int,
        slots: _CDataBase,
        n_slots: int,
    ) -> int: ...
    def pp_detach(self, s: _CDataBase, cpu: int) -> int: ...
    def pp_drain(
        self, s: _CDataBase, number: int, frame: _CDataBase, force: int, delivered: _CDataBase
    ) -> int: ...
    def pp_free(self, s: _CDataBase) -> None: ...
    def pp_get_stats(self, s: _CDataBase, cpu: int, out: _CDataBase) -> int: ...
    def pp_new(self, config: _CDataBase, out: _CDataBase) -> int: ...
    def pp_stamp(self) -> int: ...
    def pp_start(self, s: _CDataBase) -> int: ...

ffi: FFI
lib: _Lib
