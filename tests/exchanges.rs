//! Exchanges of tests around another exchange: most of their methods pass a call on.

/// Methods of an [`Exchange`](tickwire::bootstrap::Exchange) that pass the call on to the exchange in field 0.
#[macro_export]
macro_rules! exchanged {
    ($($method:ident)*) => { $( $crate::exchanged!(@ $method); )* };
    (@ rank) => { fn rank(&self) -> u32 { self.0.rank() } };
    (@ size) => { fn size(&self) -> u32 { self.0.size() } };
    (@ job) => { fn job(&self) -> &str { self.0.job() } };
    (@ put) => {
        fn put(&mut self, key: &str, value: &[u8]) -> Result<(), tickwire::bootstrap::BootstrapError> {
            self.0.put(key, value)
        }
    };
    (@ fence) => {
        fn fence(&mut self) -> Result<(), tickwire::bootstrap::BootstrapError> { self.0.fence() }
    };
    (@ get) => {
        fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, tickwire::bootstrap::BootstrapError> {
            self.0.get(rank, key)
        }
    };
    (@ finish) => { fn finish(&mut self) { self.0.finish(); } };
    (@ abandon) => { fn abandon(&mut self) { self.0.abandon(); } };
}
