//! The C++ exception that nothing caught: std::terminate() has called abort(), and the exception is still
//! the current one of this thread. Its type's name and its what() are read through the C++ runtime itself,
//! the way libstdc++'s own terminate handler does it.

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use lastwords_blackbox::layout::Crash;

/// Functions and data of the C++ runtime, found while all was well; zero: not loaded.
static CURRENT_TYPE: AtomicUsize = AtomicUsize::new(0);
static CURRENT_EXCEPTION: AtomicUsize = AtomicUsize::new(0);
static STD_EXCEPTION_TYPE: AtomicUsize = AtomicUsize::new(0);

const LONGEST: usize = 2000;

/// Looks for libstdc++ among the loaded objects. Wheels load it privately, so the global scope is not enough.
pub(crate) fn find_runtime() {
    if CURRENT_TYPE.load(Ordering::Relaxed) != 0 {
        return;
    }
    // SAFETY: RTLD_NOLOAD loads nothing; the handle keeps the library where it is. Constant names.
    unsafe {
        let library = libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return;
        }
        let find = |name: &core::ffi::CStr| libc::dlsym(library, name.as_ptr()) as usize;
        STD_EXCEPTION_TYPE.store(find(c"_ZTISt9exception"), Ordering::Relaxed);
        CURRENT_EXCEPTION.store(find(c"_ZSt17current_exceptionv"), Ordering::Relaxed);
        CURRENT_TYPE.store(find(c"__cxa_current_exception_type"), Ordering::Relaxed);
    }
}

/// std::type_info: a vtable pointer, then the mangled name (a leading `*` says "compare by address").
#[repr(C)]
struct TypeInfo {
    methods: *const usize,
    name: *const c_char,
}

/// Place of `__do_catch(thrown type, object, outer)` in type_info's vtable, in the Itanium C++ ABI of GCC.
const DO_CATCH: usize = 4;
/// Place of `what()` in std::exception's vtable, behind its two destructors.
const WHAT: usize = 2;

/// # Safety
/// Called in the crash handler, under the guard: every pointer here is the dying program's.
pub(crate) unsafe fn describe(crash: &mut Crash) {
    let current_type = CURRENT_TYPE.load(Ordering::Relaxed);
    if current_type == 0 {
        return;
    }
    // SAFETY: the runtime's own function; the rest is guarded by the caller.
    unsafe {
        let ask = core::mem::transmute::<usize, extern "C" fn() -> *const TypeInfo>(current_type);
        let thrown = ask();
        if thrown.is_null() {
            return;
        }
        let name = text((*thrown).name);
        crash.exception_type.set(name.strip_prefix(b"*").unwrap_or(name));
        if let Some(words) = what(thrown) {
            crash.exception_what.set(text(words));
        }
    }
}

/// std::exception_ptr, one pointer to the exception object. C++ returns it in memory that the caller gives,
/// because it has a destructor; a Rust struct is returned that way when it is larger than two registers.
#[repr(C)]
struct ReturnedInMemory {
    object: *mut c_void,
    unused: [usize; 3],
}

/// what(), if the exception is a std::exception at all: the runtime itself is asked whether
/// `catch (std::exception&)` would take it, which also finds the right base within the object.
unsafe fn what(thrown: *const TypeInfo) -> Option<*const c_char> {
    let caught = STD_EXCEPTION_TYPE.load(Ordering::Relaxed) as *const TypeInfo;
    let current = CURRENT_EXCEPTION.load(Ordering::Relaxed);
    if caught.is_null() || current == 0 {
        return None;
    }
    type DoCatch = extern "C" fn(*const TypeInfo, *const TypeInfo, *mut *mut c_void, u32) -> bool;
    // SAFETY: vtable calls as the compiler would make them, under the caller's guard.
    unsafe {
        let current = core::mem::transmute::<usize, extern "C" fn() -> ReturnedInMemory>(current)();
        let mut object = current.object;
        if object.is_null() {
            return None;
        }
        let do_catch = core::mem::transmute::<usize, DoCatch>(*(*caught).methods.add(DO_CATCH));
        if !do_catch(caught, thrown, &mut object, 1) {
            return None;
        }
        let methods = *object.cast::<*const usize>();
        let what =
            core::mem::transmute::<usize, extern "C" fn(*mut c_void) -> *const c_char>(*methods.add(WHAT));
        let words = what(object);
        (!words.is_null()).then_some(words)
    }
}

unsafe fn text<'a>(from: *const c_char) -> &'a [u8] {
    // SAFETY: a C string of the dying program, read under the guard and bounded.
    unsafe { core::slice::from_raw_parts(from.cast(), libc::strnlen(from, LONGEST)) }
}
