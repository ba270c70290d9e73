//! Reads the installed headers of libfabric and writes what `libfabric-sys` declares: `generate WRAPPER OUTPUT`.

use bindgen::callbacks::{IntKind, ParseCallbacks};

/// Gives macros one type each: error numbers are what functions return, everything else is a word of flags.
#[derive(Debug)]
struct Integers;

impl ParseCallbacks for Integers {
    fn int_macro(&self, name: &str, _: i64) -> Option<IntKind> {
        let rest = name.strip_prefix("FI_")?;
        let upper = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
        let number = rest.starts_with('E') && rest != "EVENT" && rest.bytes().all(upper);
        Some(if number { IntKind::I32 } else { IntKind::U64 })
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let (Some(wrapper), Some(output)) = (words.next(), words.next()) else {
        eprintln!("usage: generate WRAPPER OUTPUT");
        std::process::exit(2);
    };
    let bindings = bindgen::Builder::default()
        .header(wrapper)
        .allowlist_type("fi_.*|fid.*")
        .allowlist_var("FI_.*")
        .blocklist_type("iovec|pollfd|pthread_.*|__pthread.*|__atomic.*")
        .raw_line("// Generated from the headers of libfabric by the script `regenerate` in this folder. Do not edit.")
        .raw_line("use libc::{iovec, pollfd, pthread_cond_t, pthread_mutex_t};")
        .ignore_functions()
        .generate_comments(false)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .use_core()
        .disable_header_comment()
        .rust_target(bindgen::RustTarget::stable(85, 0).unwrap_or_else(|_| panic!("a version of Rust")))
        .rust_edition(bindgen::RustEdition::Edition2024)
        .parse_callbacks(Box::new(Integers))
        .generate();
    let bindings = bindings.unwrap_or_else(|error| panic!("the headers cannot be read: {error}"));
    bindings.write_to_file(&output).unwrap_or_else(|error| panic!("{output} cannot be written: {error}"));
}
