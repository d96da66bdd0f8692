//! Tells this machine's resolver what `resolver::apply` would for an interface, and puts it back
//! when standard input ends: for trying systems on which no test runs.
//!
//! `resolver INTERFACE ADDRESS DOMAIN STATE_DIR`

use std::io::Read;
use std::path::Path;

use host::names::resolver::{Paths, Wish, apply};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [link, address, domain, state] = &words[..] else {
        return Err("usage: resolver INTERFACE ADDRESS DOMAIN STATE_DIR".into());
    };
    let wish = Wish {
        link: link.clone(),
        servers: vec![address.parse()?],
        domain: domain.clone(),
        zones: vec!["64.100.in-addr.arpa".to_owned()],
        everything: false,
    };
    let applied = apply(&wish, &Paths::system(Path::new(state)))?;
    eprintln!("{}, before: {:?}", applied.way(), applied.upstreams());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    eprintln!("{:?}", applied.restore()?);
    Ok(())
}
