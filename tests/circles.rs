//! No circle of modules inside a crate. Of modules that stand side by side, each needs only those
//! that are drawn below it, so one can be read, tested and moved without the others.
//!
//! A module stands for everything below it, and what a child takes from its parent is no arrow:
//! the two are one thing. An arrow is a path that begins with `crate`, `super` or `self`, in an
//! import or in the code; a name that a parent only passes on counts where it is at home.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Module = Vec<String>;

/// The modules of a crate, each with its text, and where passed-on names are at home.
#[derive(Default)]
struct Crate {
    texts: BTreeMap<Module, String>,
    passed_on: BTreeMap<(Module, String), Module>,
}

/// The code without comments, texts and characters, all of the same length.
fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if let Some(hashes) = raw(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let begin = hashes + 2;
            rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len())
        } else if first == '"' {
            quoted(rest)
        } else {
            let len = first.len_utf8();
            out.push_str(&rest[..len]);
            rest = &rest[len..];
            continue;
        };
        out.push(' ');
        rest = &rest[len..];
    }
    out
}

/// How many `#` a raw text has that begins here.
fn raw(rest: &str) -> Option<usize> {
    let behind = rest.strip_prefix('r')?;
    let hashes = behind.len() - behind.trim_start_matches('#').len();
    behind[hashes..].starts_with('"').then_some(hashes)
}

fn quoted(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The code without what only tests have: modules and items behind `cfg(test)`.
fn without_tests(code: &str) -> String {
    let mut out = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let semicolon = rest.find(';').unwrap_or(rest.len());
        let brace = rest.find('{').unwrap_or(rest.len());
        let end = if semicolon < brace { semicolon + 1 } else { closing(rest, brace) };
        rest = &rest[end..];
    }
    out + rest
}

/// Behind the brace that closes the one at `open`.
fn closing(text: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, character) in text.char_indices().skip_while(|(at, _)| *at < open) {
        match character {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// Names of the modules that stand in files of their own.
fn declared(code: &str) -> Vec<&str> {
    let words = code.split_inclusive(';').filter_map(|statement| {
        let line = statement.trim_end_matches(';').lines().last()?.trim();
        let name = line.rsplit_once("mod ")?;
        let is_declared = name.0.is_empty() || name.0.trim_start().starts_with("pub");
        (is_declared && statement.ends_with(';')).then_some(name.1.trim())
    });
    words
        .filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || "_0123456789".contains(c)))
        .collect()
}

/// Paths of a tree of imports: `a::{b, c::d}` is two.
fn spread(prefix: &[String], tree: &str, paths: &mut BTreeSet<Vec<String>>) {
    let (mut depth, mut begin) = (0_u32, 0);
    let ends = tree.char_indices().chain([(tree.len(), ',')]);
    for (at, character) in ends {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                let part = tree[begin..at].trim();
                begin = at + 1;
                let names = |text: &str| -> Vec<String> {
                    let names = text.split("::").map(str::trim).filter(|name| !name.is_empty());
                    names.map(str::to_owned).collect()
                };
                if let Some((head, tail)) = part.split_once('{') {
                    let tail = tail.rsplit_once('}').map_or(tail, |(inner, _)| inner);
                    spread(&[prefix, &names(head)].concat(), tail, paths);
                } else if !part.is_empty() {
                    let part = part.split(" as ").next().unwrap_or_default();
                    paths.insert([prefix, &names(part)].concat());
                }
            }
            _ => {}
        }
    }
}

/// All paths that a module names.
fn paths(code: &str) -> BTreeSet<Vec<String>> {
    let mut paths = BTreeSet::new();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    for (at, _) in code.match_indices("use ") {
        let is_word = !code[..at].ends_with(is_name);
        let end = code[at..].find(';').map_or(code.len(), |len| at + len);
        if is_word {
            spread(&[], &code[at + 4..end], &mut paths);
        }
    }
    for begin in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(begin) {
            if code[..at].ends_with(|c| is_name(c) || c == ':' || c == '$') {
                continue;
            }
            let path = &code[at..];
            let end = path.find(|c: char| !is_name(c) && c != ':').unwrap_or(path.len());
            let names = path[..end].split("::").filter(|name| !name.is_empty());
            paths.insert(names.map(str::to_owned).collect());
        }
    }
    paths
}

impl Crate {
    fn read(root: &Path) -> Self {
        let mut house = Self::default();
        house.load(root, Vec::new(), root.parent().expect("a file is in a folder"));
        house.find_passed_on();
        house
    }

    fn of(modules: &[(&str, &str)]) -> Self {
        let texts = modules.iter().map(|(name, text)| {
            let name = name.split("::").filter(|name| !name.is_empty()).map(str::to_owned);
            (name.collect(), without_tests(&code(text)))
        });
        let mut house = Self { texts: texts.collect(), passed_on: BTreeMap::new() };
        house.find_passed_on();
        house
    }

    fn load(&mut self, file: &Path, module: Module, folder: &Path) {
        let text = fs::read_to_string(file);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let text = without_tests(&code(&text));
        for name in declared(&text) {
            let inner = folder.join(name);
            let places = [folder.join(format!("{name}.rs")), inner.join("mod.rs")];
            if let Some(place) = places.iter().find(|place| place.is_file()) {
                self.load(place, [&module[..], &[name.to_owned()]].concat(), &inner);
            }
        }
        self.texts.insert(module, text);
    }

    /// The whole path of what `module` names, if it is in this crate.
    fn whole(&self, module: &Module, path: &[String]) -> Option<Vec<String>> {
        let (mut base, mut path) = (module.clone(), path);
        match path.first()?.as_str() {
            "crate" => (base, path) = (Vec::new(), &path[1..]),
            "super" | "self" => {
                while let Some(word @ ("super" | "self")) = path.first().map(String::as_str) {
                    if word == "super" {
                        base.pop();
                    }
                    path = &path[1..];
                }
            }
            child if self.texts.contains_key(&[&base[..], &[child.to_owned()]].concat()) => {}
            _ => return None,
        }
        Some([&base[..], path].concat())
    }

    fn find_passed_on(&mut self) {
        let mut found = BTreeMap::new();
        for (module, text) in &self.texts {
            for path in paths(text) {
                let Some(whole) = self.whole(module, &path) else { continue };
                if let Some(name) = whole.last()
                    && !self.texts.contains_key(&whole)
                {
                    found.insert((module.clone(), name.clone()), whole.clone());
                }
            }
        }
        self.passed_on = found;
    }

    /// The module where a path is at home.
    fn home(&self, mut whole: Vec<String>) -> Module {
        for _ in 0..8 {
            let len = (0..=whole.len()).rev().find(|len| self.texts.contains_key(&whole[..*len]));
            let module = whole[..len.unwrap_or(0)].to_vec();
            let Some(name) = whole.get(module.len()) else { return module };
            match self.passed_on.get(&(module.clone(), name.clone())) {
                Some(next) if *next != whole => whole.clone_from(next),
                _ => return module,
            }
        }
        Vec::new()
    }

    /// Arrows between modules that stand side by side, each with a name that makes it.
    fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (module, text) in &self.texts {
            for path in paths(text) {
                let Some(whole) = self.whole(module, &path) else { continue };
                let home = self.home(whole);
                let shared = module.iter().zip(&home).take_while(|(one, other)| one == other);
                let len = shared.count() + 1;
                if len > module.len() || len > home.len() {
                    continue;
                }
                let (from, to) = (module[..len].to_vec(), home[..len].to_vec());
                let because = format!("{} uses {}", module.join("::"), path.join("::"));
                arrows.entry(from).or_default().entry(to).or_insert(because);
            }
        }
        arrows
    }

    /// All circles, each as the arrows that close it.
    fn circles(&self) -> Vec<Vec<String>> {
        let mut arrows = self.arrows();
        let mut circles = Vec::new();
        while let Some(way) = circle(&mut arrows) {
            // Without one of its arrows it is open, and the next is found.
            let ends = [&way[0].0, &way[usize::from(way.len() > 1)].0];
            arrows.get_mut(ends[0]).and_then(|to| to.remove(ends[1]));
            circles.push(way.into_iter().map(|(_, because)| because).collect());
        }
        circles
    }
}

type Arrows = BTreeMap<Module, BTreeMap<Module, String>>;

/// One circle: its modules, each with the arrow to the next. What is in none is taken away.
fn circle(arrows: &mut Arrows) -> Option<Vec<(Module, String)>> {
    loop {
        let open: BTreeSet<Module> =
            arrows.iter().filter(|(_, to)| !to.is_empty()).map(|(from, _)| from.clone()).collect();
        let before = arrows.len() + arrows.values().map(BTreeMap::len).sum::<usize>();
        // Whoever needs nobody that is left can be drawn below all others.
        arrows.retain(|module, _| open.contains(module));
        arrows.values_mut().for_each(|to| to.retain(|module, _| open.contains(module)));
        if before == arrows.len() + arrows.values().map(BTreeMap::len).sum::<usize>() {
            break;
        }
    }
    let mut at = arrows.keys().next()?.clone();
    let mut way: Vec<(Module, String)> = Vec::new();
    loop {
        if let Some(begin) = way.iter().position(|(module, _)| *module == at) {
            return Some(way.split_off(begin));
        }
        let (next, because) = arrows[&at].iter().next()?;
        way.push((at, because.clone()));
        at = next.clone();
    }
}

/// The roots of all crates: libraries and programs.
fn roots() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open = vec![top.to_owned()];
    let mut roots = Vec::new();
    while let Some(folder) = open.pop() {
        let places = ["src/lib.rs", "src/main.rs"].map(|place| folder.join(place));
        roots.extend(places.into_iter().filter(|place| place.is_file()));
        for entry in fs::read_dir(&folder).expect("a folder of the repository").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir() && !name.starts_with('.') && !["target", "docs"].contains(&&*name) {
                open.push(path);
            }
        }
    }
    roots
}

#[test]
fn modules_of_a_crate_have_no_circle() {
    let roots = roots();
    assert!(roots.len() > 20, "the crates were not found: {roots:?}");
    let mut wrong = Vec::new();
    for root in roots {
        for circle in Crate::read(&root).circles() {
            wrong.push(format!("{}:\n  {}", root.display(), circle.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "modules need each other in circles:\n{}", wrong.join("\n"));
}

#[test]
fn a_circle_is_found_wherever_its_arrows_stand() {
    let circle = |modules: &[(&str, &str)]| Crate::of(modules).circles().pop();
    let root = ("", "mod a;\nmod b;\npub use b::Thing;");
    for (a, b) in [
        ("use crate::b::Thing;", "use crate::a;"),
        ("use super::b::{self, Thing as Other};", "fn f() { crate::a::g() }"),
        // By a name that the root passes on.
        ("use crate::{\n    Thing,\n};", "use crate::a::{g};"),
    ] {
        assert_eq!(circle(&[root, ("a", a), ("b", b)]).map(|arrows| arrows.len()), Some(2), "{a}");
        assert_eq!(circle(&[root, ("a", a), ("b", "struct Thing;")]), None, "{a}");
    }
    // A child and its parent are one; what tests, comments and texts name is no arrow.
    assert_eq!(
        circle(&[root, ("a", "mod c;\nuse self::c::f;"), ("a::c", "use super::g;"), ("b", "")]),
        None
    );
    let tests = "// crate::a\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n";
    let text = "const T: &str = \"crate::a\";";
    assert_eq!(circle(&[root, ("a", "use crate::b;"), ("b", tests)]), None);
    assert_eq!(circle(&[root, ("a", "use crate::b;"), ("b", text)]), None);
    // What stands below a module speaks for it.
    assert!(
        circle(&[root, ("a", "mod c;"), ("a::c", "use crate::b::f;"), ("b", "use crate::a::g;")])
            .is_some()
    );
}
