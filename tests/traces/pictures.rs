//! Pictures that are drawn from a trace.

use crate::jobs::{run_traced, tickwire};
use std::path::Path;
use tickwire_tests::scratch;

/// The pixels of a picture, row by row.
pub(crate) fn picture(path: &Path) -> Vec<Vec<[u8; 3]>> {
    let mut reader =
        png::Decoder::new(std::io::BufReader::new(std::fs::File::open(path).unwrap())).read_info().unwrap();
    let mut bytes = vec![0u8; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    std::fs::remove_file(path).unwrap();
    let (pixels, rest) = bytes.as_chunks::<3>();
    assert!(rest.is_empty());
    pixels.chunks(info.width as usize).map(<[_]>::to_vec).collect()
}

#[test]
fn a_trace_becomes_a_picture_with_bands_and_arrows() {
    let (path, png) = (scratch::path("traces-drawn"), scratch::path("traces-png"));
    assert!(run_traced(&path, "3", &["storm", "1", "5"]).status.success());
    let draw =
        |more: &[&str]| tickwire(&[&["trace", path.to_str().unwrap(), "--png", png.to_str().unwrap()], more].concat());
    let output = draw(&[]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains(" of 3 ranks, ") && said.ends_with(", 45 messages\n"), "{said}");
    let pixels = picture(&png);
    assert_eq!(pixels[0].len(), 1400);
    // Left of the tracks there are only names, so the ground can be seen between ranks. It ends right of the tracks.
    let ground = pixels[0][0];
    let first = pixels.iter().position(|row| row[1000..].contains(&[255; 3])).unwrap();
    // An arrow may cross any column, but it never covers most of a row.
    let is_ground = |y: &usize| pixels[*y][190..1382].iter().filter(|pixel| **pixel == ground).count() > 1192 / 2;
    let between: Vec<usize> = (first..pixels.len()).filter(is_ground).collect();
    let gaps: Vec<&[usize]> = between.chunk_by(|a, b| a + 1 == *b).collect();
    assert_eq!(gaps.len(), 3, "between three ranks, and below them");
    let colours = [[205, 62, 48], [28, 104, 196], [20, 140, 92]];
    // A line between two pixels colours both of them partly.
    let near = |pixel: &[u8; 3], colour: [u8; 3]| {
        let part =
            |i: usize| (f64::from(ground[i]) - f64::from(pixel[i])) / (f64::from(ground[i]) - f64::from(colour[i]));
        (0..3).all(|i| part(i) > 0.35 && (part(i) - part((i + 1) % 3)).abs() < 0.15)
    };
    // In a few rows, something else may cover it.
    let has = |rows: &[usize], rank: usize| {
        let drawn = |&&y: &&usize| pixels[y][190..1382].iter().any(|pixel| near(pixel, colours[rank]));
        rows.iter().filter(drawn).count() * 2 > rows.len()
    };
    assert!(has(gaps[0], 0) && has(gaps[0], 1) && has(gaps[1], 2) && has(gaps[1], 1), "arrows go both ways");
    assert!(gaps[2].iter().all(|&y| pixels[y].iter().all(|pixel| *pixel == ground)), "and none goes out");

    // Draws a part of the trace: one message, and two ranks.
    let output = draw(&["--messages", "0..1", "--ranks", "0,2", "--width", "700"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains(" of 2 ranks, "), "{said}");
    assert_eq!(picture(&png)[0].len(), 700);
    for (more, words) in [
        (&["--messages", "0..46"][..], "it has 45"),
        (&["--from", "1000s"], "there is nothing from"),
        (&["--ranks", "3"], "there is no rank 3"),
    ] {
        let output = draw(more);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), line.lines().count()), (Some(2), 1), "{line}");
        assert!(line.contains(words) && !png.exists(), "{line}");
    }
    std::fs::write(&path, "no trace\n").unwrap();
    for (file, words) in [(path.to_str().unwrap(), "line 1 is no event"), ("/no/such", "No such file")] {
        let output = tickwire(&["trace", file, "--png", png.to_str().unwrap()]);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), line.lines().count()), (Some(1), 1), "{line}");
        assert!(line.contains(words) && line.contains(file) && !png.exists(), "{line}");
    }
    std::fs::remove_file(path).unwrap();
}
