// Package bench measures what users wait for, on real gVisor, beside a bare
// process as the peer. Figures are for comparing two builds on one machine in
// one minute; nothing here can fail for being slow.
package bench
