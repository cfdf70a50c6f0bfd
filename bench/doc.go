// Package bench measures latencies that users see, on real gVisor, next to a
// bare process for comparison. Compare figures only between two builds on one
// host at about the same time. No benchmark fails because it is slow.
package bench
