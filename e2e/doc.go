// Package e2e holds the tests that need the real environment: the binary that
// `make build` creates, real gVisor, real cgroups. Its tests check the state of
// the host and do not trust a guest's reports. The test of each protection has
// a control that disables the protection and must detect the attack.
package e2e
