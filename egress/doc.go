// Package egress carries all traffic between a sandbox's network interface and
// other hosts. It holds the other end of the interface (brig.Uplink), and
// all traffic of a sandbox passes through this package. It answers DNS queries
// from the rules without a query to a server. It terminates connections and
// opens new ones to addresses that were checked. It drops all packets other
// than TCP and DNS queries. A sandbox has no network path without this package,
// so a failure blocks all traffic.
package egress
