//! The examples as their users see them: the real programs, with little work.

use super::{good, text, tickwire, wrong};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output};
use std::time::Duration;
use tickwire_tests::binaries::{binary, example};
use tickwire_tests::scratch;

pub(super) fn heat(args: &[&str]) -> Output {
    Command::new(example("heat")).args(args).output().unwrap()
}

#[test]
fn heat_is_the_same_on_any_number_of_ranks() {
    let mut pictures = Vec::new();
    for ranks in ["1", "3", "6"] {
        let path = scratch::path(&format!("heat-{ranks}"));
        let sizes = ["--width", "61", "--height", "47", "--iterations", "30"];
        let output = heat(&[&["-n", ranks, "--output", path.to_str().unwrap()], &sizes[..]].concat());
        assert!(good(&output).contains("largest difference to the serial answer: 0e0\n"), "{}", text(&output.stdout));
        pictures.push(std::fs::read(&path).unwrap());
        // The picture can be the input of another run, also under a launcher.
        let (again, heat) = (scratch::path("heat-again"), example("heat"));
        let args = ["run", "-n", ranks, "--", heat.to_str().unwrap(), "--iterations", "5"];
        let files = ["--input", path.to_str().unwrap(), "--output", again.to_str().unwrap()];
        assert!(good(&tickwire(&[&args[..], &files].concat())).contains("61 x 47 cells"));
        std::fs::remove_file(path).unwrap();
        std::fs::remove_file(again).unwrap();
    }
    assert!(pictures[0].starts_with(b"\x89PNG") && pictures.iter().all(|picture| *picture == pictures[0]));
}

/// Runs boids on this many ranks.
fn boids(ranks: &str, args: &[&str]) -> Output {
    let boids = example("boids");
    match ranks {
        "1" => Command::new(boids).args(args).output().unwrap(),
        _ => tickwire(&[&["run", "-n", ranks, "--", boids.to_str().unwrap()], args].concat()),
    }
}

#[test]
fn boids_are_the_same_to_the_bit_on_any_number_of_ranks() {
    for ranks in ["1", "2", "3"] {
        let path = scratch::path(&format!("boids-{ranks}"));
        let sizes = ["--boids", "300", "--frames", "60", "--seed", "7"];
        let output = boids(ranks, &[&sizes[..], &["--picture", path.to_str().unwrap()]].concat());
        let said = good(&output);
        assert!(said.contains(&format!("300 boids on {ranks} rank")), "{said}");
        assert!(said.contains("in the end: 300 boids, 0 not as in the serial answer\n"), "{said}");
        let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap()));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let (background, bright) = (&pixels[..3], |pixel: &&[u8]| pixel.iter().any(|&part| part > 128));
        assert_eq!(background, [13, 17, 28]);
        assert!(pixels.chunks(3).filter(bright).count() > 300 * 5, "arrowheads");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn boids_say_in_one_line_what_they_cannot_use() {
    wrong(&boids("1", &["--boids", "0"]), "boids: ", "'--boids <N>'");
    wrong(&boids("1", &["--picture", "/no/such/place.png"]), "boids: ", "cannot be written");
    let crowded = boids("17", &["--picture", "/no/such/place.png"]);
    assert_eq!(crowded.status.code(), Some(2));
    assert!(text(&crowded.stderr).contains("boids: 17 ranks are too many for a plane of 960: use 16 at most\n"));
    let help = good(&boids("1", &["--help"]));
    assert!(help.contains("--frames") && help.contains("--picture") && help.contains("--seed"), "{help}");
}

#[test]
fn conjugate_gradients_give_the_serial_answer_on_any_number_of_ranks() {
    let run = |args: &[&str]| Command::new(example("cg")).args(args).output().unwrap();
    let size = ["--width", "60", "--height", "40"];
    let mut pictures = Vec::new();
    for ranks in ["1", "3", "4"] {
        let path = scratch::path(&format!("cg-{ranks}"));
        let output = run(&[&["-n", ranks, "--output", path.to_str().unwrap()], &size[..]].concat());
        let said = good(&output);
        assert!(said.contains(&format!("60 x 40 points on {ranks} ranks")), "{said}");
        pictures.push(std::fs::read(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
    }
    assert!(pictures[0].starts_with(b"\x89PNG") && pictures.iter().all(|picture| picture.len() > 1000));
    wrong(&run(&["-n", "9", "--height", "8"]), "cg: ", "9 ranks cannot share 8 rows");
    wrong(&run(&["--residual", "0"]), "cg: ", "residual of 0");
    wrong(&run(&["--output", "/no/such/place.png"]), "cg: ", "cannot be written");
    assert!(good(&run(&["--help"])).contains("--residual"));
}

#[test]
fn keys_are_counted_in_windows_as_by_one_rank() {
    let histogram = example("histogram");
    let run = |args: &[&str]| Command::new(&histogram).args(args).output().unwrap();
    let sizes = ["--keys", "5000", "--bins", "40", "--seed", "3"];
    for ranks in ["1", "3", "4"] {
        let path = scratch::path(&format!("histogram-{ranks}"));
        let args = [&sizes[..], &["--picture", path.to_str().unwrap()]].concat();
        let launched = ["run", "-n", ranks, "--", histogram.to_str().unwrap()];
        for output in [run(&[&["-n", ranks], &args[..]].concat()), tickwire(&[&launched[..], &args].concat())] {
            let said = good(&output);
            assert!(said.contains(&format!("5000 keys on {ranks} rank")), "{said}");
            assert!(said.contains("not as in the serial count: 0 keys, 0 bins\n"), "{said}");
            assert!(std::fs::read(&path).unwrap().starts_with(b"\x89PNG"));
        }
        std::fs::remove_file(path).unwrap();
    }
    wrong(&run(&["--keys", "0"]), "histogram: ", "'--keys <K>'");
    wrong(&run(&["--picture", "/no/such/place.png"]), "histogram: ", "cannot be written");
    assert!(good(&run(&["--help"])).contains("--bins"));
}

#[test]
fn heat_says_in_one_line_what_it_cannot_use() {
    let bad = scratch::path("heat-bad");
    std::fs::write(&bad, "not a picture").unwrap();
    wrong(&heat(&["--input", bad.to_str().unwrap()]), "heat: ", "not a PNG");
    std::fs::remove_file(bad).unwrap();
    wrong(&heat(&["--input", "/no/such.png"]), "heat: /no/such.png", "No such file");
    wrong(&heat(&["-n", "7", "--width", "3", "--height", "3"]), "heat: ", "7 ranks cannot share 3 x 3 cells");
    wrong(&heat(&["-n", "0"]), "heat: ", "0");
    wrong(&heat(&["--output", "/no/such/place.png"]), "heat: ", "cannot be written");
}

#[test]
fn an_error_is_a_single_write_so_that_lines_of_ranks_do_not_mix() {
    let (run, heat, boids) = (&["run", "-n", "1", "--", "/no/such/program"][..], example("heat"), example("boids"));
    for (program, args, start) in [
        (binary("tickwire"), &["no-such-command"][..], "tickwire: unrecognized"),
        (binary("tickwire"), run, "tickwire run: "),
        (heat, &["--width", "x"], "heat: invalid value"),
        (boids, &["--boids", "x"], "boids: invalid value"),
    ] {
        // Each write to such a socket is a message of its own.
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut child = Command::new(program).args(args).stderr(OwnedFd::from(theirs)).spawn().unwrap();
        let mut bytes = [0; 4096];
        let length = ours.recv(&mut bytes).unwrap();
        let line = text(&bytes[..length]);
        assert!(line.starts_with(start) && line.ends_with('\n'), "{line:?}");
        assert!(!child.wait().unwrap().success());
    }
}
