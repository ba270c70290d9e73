//! The wrappers over the providers that are on this machine.

use super::*;
use std::ffi::c_void;
use std::time::{Duration, Instant};
use tickwire_components::Span;

/// Providers that a machine without a special network has.
const PROVIDERS: [&str; 5] = ["tcp;ofi_rxm", "net", "sockets", "shm", "udp;ofi_rxd"];
/// How long anything here may take.
const BOUND: Duration = Duration::from_secs(10);

/// The library, or a line that says that it is missing.
pub(super) fn library() -> Option<Library> {
    let library = Library::get();
    if let Err(error) = &library {
        assert!(std::env::var_os("CI").is_none(), "{error}");
        eprintln!("SKIPPED: {error}");
    }
    library.ok()
}

/// An endpoint with all that it needs.
pub(super) struct Open {
    pub(super) endpoint: Endpoint,
    pub(super) queue: CompletionQueue,
    pub(super) addresses: AddressVector,
    pub(super) name: Vec<u8>,
}

/// Opens all that an endpoint needs; `None` where the provider is missing.
pub(super) fn open(library: &Library, provider: &str, sleeps: bool) -> Result<Option<Open>, OfiError> {
    let choice = Choice { include: vec![provider.into()], ..Choice::default() };
    let hints = Hints { provider: Some(provider.into()), ..message_hints() };
    let candidates = choice.candidates(library, &hints)?;
    if candidates.is_empty() {
        return Ok(None);
    }
    let info = choice.take(candidates)?.remove(0);
    assert_eq!(info.provider(), provider);
    let fabric = Fabric::open(&info)?;
    // SAFETY: everything stays on this thread.
    #[expect(unsafe_code, reason = "FFI")]
    let domain = unsafe { Domain::open(&fabric, info)? };
    let addresses = AddressVector::open(&domain, 4)?;
    let queue = CompletionQueue::open(&domain, 0, sleeps)?;
    let endpoint = Endpoint::open(&domain, domain.info(), &addresses, &queue, &queue)?;
    let name = endpoint.name()?;
    Ok(Some(Open { endpoint, queue, addresses, name }))
}

/// Reads until an operation has completed.
fn wait(open: &[&Open], at: usize, context: *mut c_void) -> Result<Completion, ReadError> {
    let start = Instant::now();
    let mut completions = [no_completion(); 1];
    while start.elapsed() < BOUND {
        for (index, open) in open.iter().enumerate() {
            let count = open.queue.read(&mut completions)?;
            if count == 1 && index == at && completions[0].op_context == context {
                return Ok(completions[0]);
            }
        }
    }
    panic!("nothing completes");
}

#[test]
#[expect(unsafe_code, reason = "FFI")]
fn bytes_go_from_one_endpoint_to_another_over_each_provider() {
    let Some(library) = library() else { return };
    let mut found = 0;
    for provider in PROVIDERS {
        let Some(first) = open(&library, provider, false).unwrap() else { continue };
        let second = open(&library, provider, true).unwrap().unwrap();
        found += 1;
        let to = first.addresses.insert(&second.name).unwrap();
        let mut contexts = [[0u64; 8]; 2];
        let [sent, received] = contexts.each_mut().map(|context| context.as_mut_ptr().cast::<c_void>());
        let mut from: Vec<u8> = (0..200).collect();
        let mut into = vec![0u8; 4096];
        // SAFETY: buffers and contexts outlive the endpoints' use of them: both complete below.
        unsafe {
            let (from, into) = (Span::new(from.as_mut_ptr(), 200), Span::new(into.as_mut_ptr(), 4096));
            second.endpoint.receive(into, std::ptr::null_mut(), 0, received).unwrap();
            let start = Instant::now();
            // The first sends may wait for a connection.
            while let Err(refused) = first.endpoint.send(from, std::ptr::null_mut(), to, sent) {
                assert_eq!((refused, start.elapsed() < BOUND), (Refused::Again, true), "{provider}");
                first.queue.read(&mut [no_completion()]).unwrap();
                second.queue.read(&mut [no_completion()]).unwrap();
            }
        }
        let both = [&first, &second];
        assert_eq!(wait(&both, 1, received).unwrap().len, 200, "{provider}");
        assert!(into[..200] == from && into[200..].iter().all(|&byte| byte == 0), "{provider}");
        // Dropped in an order of its own: what is needed is kept.
        let Open { endpoint, queue, addresses, name: _ } = second;
        let domain = endpoint.domain().clone();
        drop((addresses, queue, domain, endpoint));
    }
    assert_eq!(super::domain::REFUSED.get(), 0, "everything was closed in order");
    assert!(found >= 3, "libfabric has tcp, sockets and shm at least");
}

#[test]
fn candidates_are_ranked_and_each_has_its_reason() {
    let Some(library) = library() else { return };
    let hints = message_hints();
    let all = Choice::default().survey(&library, &hints).unwrap();
    let taken = |all: &[Candidate]| {
        let taken = all.iter().filter(|candidate| matches!(candidate.verdict, Verdict::Taken(_)));
        taken.map(|candidate| candidate.provider.clone()).collect::<Vec<_>>()
    };
    assert_eq!(taken(&all).len(), 1, "{all:?}");
    let shm = all.iter().find(|candidate| candidate.provider == "shm").unwrap();
    assert!(matches!(&shm.verdict, Verdict::Left(why) if why.contains("this host")), "{all:?}");
    let excluding = Choice { exclude: taken(&all), ..Choice::default() };
    let others = excluding.candidates(&library, &hints).unwrap();
    assert_ne!(taken(&others), taken(&all));
    assert!(others.iter().any(|c| matches!(&c.verdict, Verdict::Left(why) if why.starts_with("excluded: "))));
    let only = Choice { include: vec!["sockets".into()], ..Choice::default() };
    let found = only.candidates(&library, &hints).unwrap();
    assert_eq!(taken(&found), ["sockets"]);
    assert_eq!(only.take(found).unwrap()[0].provider(), "sockets");
}

#[test]
fn what_cannot_be_had_is_one_clear_error() {
    let Some(library) = library() else { return };
    let hints = message_hints();
    let words =
        |choice: Choice| choice.take(choice.candidates(&library, &hints).unwrap()).map(drop).unwrap_err().to_string();
    let unknown = words(Choice { include: vec!["quadrics".into()], ..Choice::default() });
    assert!(unknown.contains("no provider \"quadrics\" here: there are ") && unknown.contains("sockets"), "{unknown}");
    let interface = Choice { include: vec!["sockets".into()], interface: Some("ib7".into()), ..Choice::default() };
    let interface = words(interface);
    assert!(interface.contains("provider sockets does not use the interface \"ib7\": it has "), "{interface}");
    let Some(open) = open(&library, "sockets", false).unwrap() else { return };
    let words = open.addresses.insert(&[1, 2, 3]).unwrap_err().to_string();
    assert!(words.starts_with("fi_av_insert of provider sockets failed: Invalid argument (22)"), "{words}");
}

extern "C" fn ignore(_: libc::c_int) {}

#[test]
#[expect(unsafe_code, reason = "signals to a thread of this process")]
fn a_signal_ends_a_wait_for_completions_and_breaks_nothing() {
    let Some(library) = library() else { return };
    for provider in ["net", "tcp;ofi_rxm", "udp;ofi_rxd"] {
        let Some(open) = open(&library, provider, true).unwrap() else { continue };
        // A queue without a descriptor was not opened for waiting.
        if open.queue.wait_fd().is_none() {
            continue;
        }
        // SAFETY: a handler that does nothing, for a signal that nobody else here uses. The thread lives until the scope ends.
        let waiter = unsafe {
            libc::signal(libc::SIGUSR2, ignore as *const () as libc::sighandler_t);
            libc::pthread_self()
        };
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let start = Instant::now();
                while !over.load(std::sync::atomic::Ordering::Relaxed) && start.elapsed() < BOUND {
                    // SAFETY: as above.
                    unsafe { libc::pthread_kill(waiter, libc::SIGUSR2) };
                    std::thread::yield_now();
                }
            });
            for _ in 0..100 {
                let read = open.queue.wait_read(&mut [no_completion()], 2);
                assert!(matches!(read, Ok(0)), "{provider}: {read:?}");
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}

#[test]
fn an_address_of_another_family_is_refused_before_the_provider_reads_it() {
    let Some(library) = library() else { return };
    for provider in ["tcp;ofi_rxm", "net", "sockets"] {
        let Some(open) = open(&library, provider, false).unwrap() else { continue };
        for family in [0u16, 10, 27, 9999] {
            let mut address = open.name[..16].to_vec();
            address[..2].copy_from_slice(&family.to_ne_bytes());
            assert!(open.addresses.insert(&address).is_err(), "{provider}, family {family}");
        }
        assert!(open.addresses.insert(&open.name).is_ok(), "{provider}");
    }
}
