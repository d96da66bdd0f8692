//! Through whom a network is reached that another node serves: a word of a gateway in a tree or a
//! star of sites, which has no link to that node.

use control::{Map, Prefix, Through};

use crate::Settings;

/// This node's place among gateways of sites.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Standing<'w> {
    /// Whether it passes on what others send each other.
    pub(crate) passes_on: bool,
    /// Through whom it reaches what.
    pub(crate) through: &'w [Through],
}

/// What counts: this node's own settings, where they say anything. A gateway of a site whose
/// settings say nothing takes the server's word, so that one at a cloud, which nobody logs into,
/// learns another topology too. No other node does.
pub(crate) fn standing<'w>(map: &'w Map, settings: &'w Settings) -> Standing<'w> {
    let says_nothing = !settings.site_hub && settings.routes_through.is_empty();
    if settings.site_gateway && says_nothing {
        let ways = &map.me.ways;
        return Standing { passes_on: ways.passes_on, through: &ways.through };
    }
    Standing { passes_on: settings.site_hub, through: &settings.routes_through }
}

/// Through whom a route goes, by the words for the longest prefix that holds it; nobody where
/// nothing is said of it.
pub(crate) fn hops<'w>(words: &'w [Through], route: &Prefix) -> Vec<&'w str> {
    let holds = |word: &&Through| {
        word.prefix.bits() <= route.bits() && word.prefix.contains(route.address())
    };
    let longest = words.iter().filter(holds).map(|word| word.prefix.bits()).max();
    let meant = words.iter().filter(holds).filter(|word| Some(word.prefix.bits()) == longest);
    meant.map(|word| word.node.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_says_through_whom() {
        let read = |text: &str| text.parse::<Through>().unwrap();
        let words = ["10.0.0.0/8=up", "10.4.0.0/16=down", "10.4.0.0/16=down-2"].map(read);
        let hops = |route: &str| hops(&words, &route.parse().unwrap());
        assert_eq!(hops("10.7.0.0/24"), ["up"]);
        assert_eq!(hops("10.4.7.0/24"), ["down", "down-2"]);
        assert_eq!(hops("10.0.0.0/7"), [""; 0], "wider than what was said");
        assert_eq!(hops("fd00::/64"), [""; 0]);
    }
}
