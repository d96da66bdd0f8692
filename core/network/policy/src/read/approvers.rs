//! `autoApprovers`: whose announcements of routes need no further word.

use super::*;

impl Reader {
    pub(super) fn approvers(&mut self, field: Option<&Field>) {
        let Some(field) = field else { return };
        let fields = self.object(&field.value, "an object with routes and exitNode");
        let [routes, exits] = self.sorted(fields, ["routes", "exitNode"], &["services"]);
        if let Some(exits) = exits {
            self.policy.exits = self.selectors(&exits.value, Role::Owner);
        }
        let Some(routes) = routes else { return };
        for route in self.object(&routes.value, "an object of prefixes and lists") {
            let prefix = self.prefix(route.place, &route.key);
            let owners = self.selectors(&route.value, Role::Owner);
            self.policy.routes.extend(prefix.map(|prefix| (prefix, owners)));
        }
    }
}
