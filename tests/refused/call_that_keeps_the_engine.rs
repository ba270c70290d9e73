use tickwire::{Scope, Submitter};

fn keep(submitter: &Submitter) {
    let kept = submitter.call(|engine: &mut Scope<'_, 'static>| engine);
    drop(kept);
}

fn main() {}
