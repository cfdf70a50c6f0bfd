// Command probe inspects a sandbox from the inside for the tests of e2e. It is
// statically linked, so that it runs in any image. It never writes to files
// that it finds writable; it only records them.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// facts holds the findings, by name.
type facts map[string]string

func main() {
	// Some of the attempts change the state of their thread.
	runtime.LockOSThread()
	do := func() error { return run(os.Args[1:]) }
	if filepath.Base(os.Args[0]) == "brig-agent" {
		do = hostileAgent
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: probe posture|caps|walk|euid|canary|processes|files|fill|inodes|flood")
	}
	switch args[0] {
	case "posture":
		return reportPosture()
	case "caps":
		f := facts{}
		identity(f)
		capabilities(f)
		return report(f)
	case "walk":
		return report(walk(args[1]))
	case "volume":
		return report(volume())
	case "euid":
		fmt.Println(os.Geteuid())
		return nil
	default:
		return attack(args[0], args[1:])
	}
}

func reportPosture() error {
	f := facts{}
	descriptors(f) // before the probe opens descriptors itself
	identity(f)
	capabilities(f)
	limits(f)
	machine(f)
	environment(f)
	mounts(f)
	devices(f)
	processes(f)
	initProcess(f)
	unixSockets(f)
	network(f)
	writable(f)
	paths(f)
	families(f)
	calls(f)
	return report(f)
}

func report(f facts) error { return json.NewEncoder(os.Stdout).Encode(f) }
