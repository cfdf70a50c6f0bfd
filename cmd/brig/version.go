package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// gvisorModule is the module whose version says which gVisor is inside.
const gvisorModule = "gvisor.dev/gvisor"

// version is this build's version: the module's, or the commit's.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (v == "" || v == "(devel)") && len(s.Value) >= 12 {
			v = s.Value[:12]
		}
	}
	if v == "" {
		v = "(devel)"
	}
	return v
}

func gvisorVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == gvisorModule {
				return d.Version
			}
		}
	}
	return "unknown"
}

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of brig and of the gVisor inside",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if c.asJSON {
				return c.printJSON(map[string]string{"brig": version(), "gvisor": gvisorVersion(), "go": runtime.Version()})
			}
			_, err := fmt.Fprintf(c.stdout, "brig %s\ngvisor %s\n%s %s/%s\n", version(), gvisorVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
