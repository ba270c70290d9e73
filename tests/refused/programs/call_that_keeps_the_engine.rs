use tickwire::{Owned, Scope, Submitter};

fn keep(submitter: &Submitter) {
    let kept = submitter.call(|engine: &mut Scope<'_, 'static, Owned>| engine);
    drop(kept);
}

fn main() {}
