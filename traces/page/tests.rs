use super::*;
use std::sync::atomic::AtomicBool;

fn page(peers: usize) -> (Page, File) {
    let identity = Identity { pid: 7, rank: 2, size: 4, engine: 1 };
    let page = Page::new(identity, "job-7-ab", &["loopback", "shm"], peers);
    let file = File::from(page.file().unwrap().try_clone().unwrap());
    (page, file)
}

#[test]
fn what_is_written_can_be_read() {
    let (mut page, file) = page(3);
    page.ticked(99);
    page.asleep(true);
    let peer = |proc| PeerFigures { proc, sent: proc * 10, ..Default::default() };
    page.publish(Figures { busy: 5, peers: 9, ..Default::default() }, 1, (1..9).map(peer));
    let read = Snapshot::read(&file).unwrap();
    assert_eq!((read.ticks, read.asleep, &*read.job, read.identity.rank), (99, true, "job-7-ab", 2));
    assert_eq!((read.endpoints, read.figures.busy), (vec!["loopback".to_owned(), "shm".to_owned()], 5));
    assert_eq!(read.peers, [PeerFigures::default(), peer(1), peer(2)], "there is room for three");
}

#[test]
fn names_have_no_control_characters() {
    let page = Page::new(Identity::default(), "job\u{7}-7", &["\u{1b}[2Jx", "a\u{9b}2J\n"], 0);
    let read = Snapshot::read(&File::from(page.file().unwrap().try_clone().unwrap())).unwrap();
    assert_eq!((&*read.job, read.endpoints), ("job -7", vec![" [2Jx".to_owned(), "a 2J ".to_owned()]));
}

#[test]
fn a_reader_sees_figures_that_fit_each_other() {
    let (mut page, file) = page(1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..200 {
                let Ok(read) = Snapshot::read(&file) else { continue };
                let figures = read.figures;
                assert_eq!((figures.closed, figures.written_ns), (figures.busy, figures.busy), "round {round}");
            }
            stop.store(true, Ordering::Relaxed);
        });
        let mut n = 0;
        while !stop.load(Ordering::Relaxed) {
            n += 1;
            let figures = Figures { written_ns: n, busy: n, closed: n, ..Default::default() };
            page.publish(figures, 0, std::iter::empty());
        }
    });
}

#[test]
fn what_is_no_page_is_refused() {
    let file = File::open("/proc/self/exe").unwrap();
    assert!(Snapshot::read(&file).unwrap_err().to_string().contains("another version"));
    assert!(Snapshot::read(&File::open("/dev/null").unwrap()).is_err());
}
