//! Calls that answer through a callback, on a thread of the library, and that are waited for with a bound.

use crate::bindings::{
    Api, KEY, PMIX_BOOL, PMIX_BYTE_OBJECT, PMIX_INT, PMIX_OPERATION_SUCCEEDED, PMIX_PROC_RANK, PMIX_SIZE, PMIX_STRING,
    PMIX_SUCCESS, PMIX_UINT, PMIX_UINT16, PMIX_UINT32, PMIX_UINT64, pmix_data_t, pmix_info_t, pmix_proc_t,
    pmix_status_t, pmix_value_t,
};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null;
use std::slice;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A value, copied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// Bytes.
    Bytes(Vec<u8>),
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
    /// A type that is not read, by its number.
    Other(u16),
}

/// A call on its way. The library has a share of it until it has answered, however long that takes: what the call refers to is in here.
struct Pending<T> {
    answer: Mutex<Option<T>>,
    came: Condvar,
    of: pmix_proc_t,
    key: CString,
    infos: Vec<pmix_info_t>,
}

impl<T> Pending<T> {
    fn new(of: pmix_proc_t, key: CString, infos: Vec<pmix_info_t>) -> Arc<Self> {
        Arc::new(Self { answer: Mutex::new(None), came: Condvar::new(), of, key, infos })
    }

    fn answer(&self, answer: T) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        self.came.notify_all();
    }

    fn wait(&self, patience: Duration) -> Option<T> {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.came.wait_timeout_while(answer, patience, |answer| answer.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}

/// A directive that is on or off.
pub(crate) fn info(key: &str, flag: bool) -> pmix_info_t {
    let mut name = [0; KEY];
    // One less than there is room for: it ends with a zero.
    for (to, &from) in name[..KEY - 1].iter_mut().zip(key.as_bytes()) {
        *to = from as c_char;
    }
    let mut data = pmix_data_t { widest: [0; 3] };
    data.flag = flag;
    pmix_info_t { key: name, flags: 0, value: pmix_value_t { kind: PMIX_BOOL, data } }
}

/// A fence of all processes of the job: its status, unless there is none in time.
pub(crate) fn fence(api: &Api, infos: Vec<pmix_info_t>, patience: Duration) -> Option<pmix_status_t> {
    let nobody = pmix_proc_t { nspace: [0; crate::bindings::NAMESPACE], rank: 0 };
    let pending = Pending::<pmix_status_t>::new(nobody, CString::default(), infos);
    let theirs = Arc::into_raw(pending.clone());
    // SAFETY: the directives are in what the library has a share of until it calls back; no processes are named, which stands for all.
    let status = unsafe {
        let infos = &(*theirs).infos;
        (api.fence_nb)(null(), 0, infos.as_ptr(), infos.len(), fenced, theirs.cast_mut().cast())
    };
    if status != PMIX_SUCCESS {
        // SAFETY: where the call fails or is done at once, the callback is not called: the share comes back.
        drop(unsafe { Arc::from_raw(theirs) });
        return Some(if status == PMIX_OPERATION_SUCCEEDED { PMIX_SUCCESS } else { status });
    }
    pending.wait(patience)
}

/// SAFETY: the library calls it once for each call of `fence` that it has taken.
unsafe extern "C" fn fenced(status: pmix_status_t, pending: *mut c_void) {
    // SAFETY: the share that `fence` has given.
    let pending = unsafe { Arc::from_raw(pending.cast_const().cast::<Pending<pmix_status_t>>()) };
    pending.answer(status);
}

/// What a call gives that the library does not bound: it is made on a thread of its own. `None` if it is not back in time, or there is no
/// thread. The thread then stays in the library, with all that it uses, until the process ends.
pub(crate) fn bounded<T: Send + 'static>(patience: Duration, call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = std::sync::mpsc::channel();
    let run = move || {
        // Nobody may wait any more.
        let _ = tell.send(call());
    };
    std::thread::Builder::new().name("tickwire-pmix".to_owned()).spawn(run).ok()?;
    told.recv_timeout(patience).ok()
}

type Got = Result<Value, pmix_status_t>;

/// A value, or the status of failure, unless there is none in time.
pub(crate) fn get(
    api: &Api,
    of: pmix_proc_t,
    key: CString,
    infos: Vec<pmix_info_t>,
    patience: Duration,
) -> Option<Got> {
    let pending = Pending::<Got>::new(of, key, infos);
    let theirs = Arc::into_raw(pending.clone());
    // SAFETY: all that is passed is in what the library has a share of until it calls back.
    let status = unsafe {
        let Pending { of, key, infos, .. } = &*theirs;
        (api.get_nb)(of, key.as_ptr(), infos.as_ptr(), infos.len(), got, theirs.cast_mut().cast())
    };
    if status != PMIX_SUCCESS {
        // SAFETY: where the call fails, the callback is not called: the share comes back.
        drop(unsafe { Arc::from_raw(theirs) });
        return Some(Err(status));
    }
    pending.wait(patience)
}

/// SAFETY: the library calls it once for each call of `get` that it has taken. The value is null, or valid during the call.
unsafe extern "C" fn got(status: pmix_status_t, value: *mut pmix_value_t, pending: *mut c_void) {
    // SAFETY: the share that `get` has given.
    let pending = unsafe { Arc::from_raw(pending.cast_const().cast::<Pending<Got>>()) };
    // SAFETY: as above.
    let value = unsafe { value.as_ref() };
    pending.answer(match (status, value) {
        // SAFETY: the type says which field is valid.
        (PMIX_SUCCESS, Some(value)) => Ok(unsafe { read(value) }),
        (PMIX_SUCCESS, None) => Err(crate::bindings::PMIX_ERR_NOT_FOUND),
        (status, _) => Err(status),
    });
}

/// Copies a value.
///
/// # Safety
/// Its type says which of its fields is valid.
unsafe fn read(value: &pmix_value_t) -> Value {
    let data = value.data;
    // SAFETY: the caller says so. Strings end; bytes are as many as their size says.
    unsafe {
        match value.kind {
            PMIX_STRING if !data.string.is_null() => {
                Value::Text(CStr::from_ptr(data.string).to_string_lossy().into_owned())
            }
            PMIX_BYTE_OBJECT if data.bo.size == 0 || data.bo.bytes.is_null() => Value::Bytes(Vec::new()),
            PMIX_BYTE_OBJECT => Value::Bytes(slice::from_raw_parts(data.bo.bytes.cast(), data.bo.size).to_vec()),
            PMIX_SIZE => Value::Number(data.size as u64),
            PMIX_INT => Value::Number(data.int.max(0) as u64),
            PMIX_UINT | PMIX_UINT32 | PMIX_PROC_RANK => Value::Number(data.uint32.into()),
            PMIX_UINT16 => Value::Number(data.uint16.into()),
            PMIX_UINT64 => Value::Number(data.uint64),
            other => Value::Other(other),
        }
    }
}
