// Package egress is everything between a sandbox's network interface and the
// world. It has the other end of the interface (brig.Uplink), and nothing that
// a sandbox sends goes anywhere but through here: names are answered by the
// rules and never by asking anybody, connections end here and are made anew to
// addresses that were judged, and what is not TCP or a question for a name is
// dropped. Without this package there is no way out, so that when it fails,
// nothing leaves.
package egress
