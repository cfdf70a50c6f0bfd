// Package e2e holds the tests that need the real thing: the binary that
// `make build` leaves, real gVisor, real cgroups. Its tests judge by what the
// host sees and not by what a guest says, and those of a protection come with
// a control that turns red when the protection is off.
package e2e
