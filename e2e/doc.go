// Package e2e holds the tests that need a real environment: the binaries that `make build`
// creates, real gVisor and real cgroups. The tests inspect the state of the host and do not trust
// a guest's reports. The test of each protection has a control in which the protection is
// disabled and the attack must be detected.
package e2e
