//! The methods that wrappers of a transport pass on unchanged, written once. Each wrapper lists them by name.

/// Methods of [`Transport`](crate::Transport), or of its boxed form, that call the field `inner`.
macro_rules! hand_on {
    (@name) => {
        fn name(&self) -> &str {
            self.inner.name()
        }
    };
    (@capabilities) => {
        fn capabilities(&self) -> &$crate::Capabilities {
            self.inner.capabilities()
        }
    };
    (@card) => {
        fn card(&self) -> Vec<u8> {
            self.inner.card()
        }
    };
    (@reaches) => {
        fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String> {
            self.inner.reaches(proc, card)
        }
    };
    (@moved) => {
        fn moved(&self) -> (u64, u64) {
            self.inner.moved()
        }
    };
    (@traffic) => {
        fn traffic(&self, link: u32) -> Option<$crate::Traffic> {
            self.inner.traffic(link)
        }
    };
    (@memory) => {
        fn memory(&mut self) -> Option<&mut dyn $crate::Memory> {
            self.inner.memory()
        }
    };
    (@direct) => {
        fn direct(&mut self) -> Option<&mut dyn $crate::Direct> {
            self.inner.direct()
        }
    };
    (@one_sided) => {
        fn one_sided(&mut self) -> Option<&mut dyn $crate::OneSided> {
            self.inner.one_sided()
        }
    };
    (@matching) => {
        fn matching(&mut self) -> Option<&mut dyn $crate::Matching> {
            self.inner.matching()
        }
    };
    (@lending) => {
        fn lending(&mut self) -> Option<&mut dyn $crate::Lending> {
            self.inner.lending()
        }
    };
    (@registering) => {
        fn registering(&mut self) -> Option<&mut dyn $crate::Registering> {
            self.inner.registering()
        }
    };
    (@shared_memory) => {
        fn shared_memory(&mut self) -> Option<&mut dyn $crate::SharedMemory> {
            self.inner.shared_memory()
        }
    };
    (@watchers) => {
        fn watchers(&mut self) -> Option<&mut dyn $crate::Watchers> {
            self.inner.watchers()
        }
    };
    (@credit_windows) => {
        fn credit_windows(&mut self) -> Option<&mut dyn $crate::CreditWindows> {
            self.inner.credit_windows()
        }
    };
    (@connect) => {
        fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
            self.inner.connect(proc, card, now_ns)
        }
    };
    (@attach) => {
        fn attach(&mut self, link: u32, vc: tickwire_components::Row) {
            self.inner.attach(link, vc);
        }
    };
    (@fits) => {
        fn fits(&mut self, link: u32, payload: u64) -> u64 {
            self.inner.fits(link, payload)
        }
    };
    (@shared_bytes) => {
        fn shared_bytes(&self) -> u64 {
            self.inner.shared_bytes()
        }
    };
    (@flush) => {
        fn flush(&mut self) {
            self.inner.flush();
        }
    };
    (@ready) => {
        fn ready(&self) -> bool {
            self.inner.ready()
        }
    };
    (@drain) => {
        fn drain(&mut self, now_ns: u64, arrivals: &mut [tickwire_components::Arrival]) -> usize {
            self.inner.drain(now_ns, arrivals)
        }
    };
    (@drain_link) => {
        fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [tickwire_components::Arrival]) -> usize {
            self.inner.drain_link(link, now_ns, arrivals)
        }
    };
    (@release) => {
        fn release(&mut self) {
            self.inner.release();
        }
    };
    (@wants_control) => {
        fn wants_control(&self) -> bool {
            self.inner.wants_control()
        }
    };
    (@control) => {
        fn control(&mut self, now_ns: u64, events: &mut Vec<$crate::LinkEvent>) {
            self.inner.control(now_ns, events);
        }
    };
    (@close_link) => {
        fn close_link(&mut self, link: u32) {
            self.inner.close_link(link);
        }
    };
    (@give_up) => {
        fn give_up(&mut self, link: u32, reason: &str) {
            self.inner.give_up(link, reason);
        }
    };
    (@has_ended) => {
        fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String> {
            self.inner.has_ended(proc, card)
        }
    };
    (@wait_fd) => {
        fn wait_fd(&self) -> Option<rustix::fd::BorrowedFd<'_>> {
            self.inner.wait_fd()
        }
    };
    (@arm) => {
        fn arm(&mut self) -> bool {
            self.inner.arm()
        }
    };
    (@must_poll) => {
        fn must_poll(&self) -> bool {
            self.inner.must_poll()
        }
    };
    (@disarm) => {
        fn disarm(&mut self) {
            self.inner.disarm();
        }
    };
    (@close) => {
        fn close(&mut self) {
            self.inner.close();
        }
    };
    ($($method:ident)*) => {
        $($crate::wrapping::hand_on!(@$method);)*
    };
}
pub(crate) use hand_on;
