//! Jobs that hang in collective operations.

use crate::kit::{Hanging, good, tickwire};

#[test]
fn a_rank_that_has_not_entered_a_collective_operation_is_found() {
    let job = Hanging::start("sum", 2, &[]);
    let words = [
        "rank 0 waits for rank 1 to take part in reduce of world; rank 1 has not entered it\n",
        "rank 1 waits for tag 1 from rank 0\n",
    ];
    job.until(&["whowaits"], &words);
    let said = good(&tickwire(&["dump", &job.processes()[0].to_string()], None));
    assert!(said.contains("receive of up to 8 B from rank 1 of reduce of world: posted"), "{said}");
}

#[test]
fn a_rank_that_has_not_started_a_persistent_operation_is_found() {
    for way in ["restart", "restart-boards"] {
        let job = Hanging::start(way, 2, &[]);
        let words = [
            "rank 0 waits for rank 1 to take part in allreduce of world; rank 1 has not started it again\n",
            "rank 1 waits for tag 1 from rank 0\n",
        ];
        job.until(&["whowaits"], &words);
    }
    let job = Hanging::start("unmade", 2, &[]);
    let words = [
        "rank 0 waits for rank 1 to take part in bcast of world; rank 1 has not made it\n",
        "rank 1 to take part in bcast of world; rank 1 has made it, and has not started it\n",
    ];
    job.until(&["whowaits"], &words);
}

#[test]
fn who_waits_in_a_collective_operation_does_not_wait_for_other_receives() {
    let job = Hanging::start("ahead", 3, &[]);
    let words = [
        "rank 2 to take part in allgatherv of world",
        "rank 0 has pending, but does not wait for, tag 1 from rank 1",
        "rank 1 has pending, but does not wait for, tag 1 from rank 0",
    ];
    job.until_without(&["whowaits"], &words, &["cycle: rank 0 → 1 → 0"]);
}

#[test]
fn a_rank_that_has_not_entered_the_first_operation_of_all_is_found() {
    let job = Hanging::start("first", 2, &[]);
    let words = [
        "rank 0 waits for rank 1 to take part in barrier of world; rank 1 has not entered it\n",
        "rank 1 waits for tag 1 from rank 0\n",
    ];
    job.until(&["whowaits"], &words);
}
