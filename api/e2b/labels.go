package e2b

import (
	"strings"

	"github.com/brig-run/brig"
)

// reserved begins the labels that are the door's own. E2B's metadata are all
// the other ones.
const reserved = "brig.e2b/"

// The labels by which the door remembers what a sandbox was asked for with.
const (
	labelDoor     = reserved + "door" // it made the sandbox
	labelTemplate = reserved + "template"
	labelPublic   = reserved + "allow-public-traffic"
	labelMask     = reserved + "mask-request-host"
	labelHTTPS    = reserved + "https-ports"
	labelNetwork  = reserved + "network" // it was asked for with one
)

// The variables that a sandbox has by contract.
const (
	envMark     = "E2B_SANDBOX"
	envID       = "E2B_SANDBOX_ID"
	envTemplate = "E2B_TEMPLATE_ID"
)

// isMade reports whether the door made s.
func isMade(s *brig.Sandbox) bool { return s.Spec.Labels[labelDoor] != "" }

// metadata are the labels that are not the door's own.
func metadata(labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		if !strings.HasPrefix(k, reserved) {
			out[k] = v
		}
	}
	return out
}

// checkMetadata refuses the keys that are the door's own.
func checkMetadata(m map[string]string) error {
	for k := range m {
		if strings.HasPrefix(k, reserved) {
			return brig.InvalidField("metadata", "keys that begin with %s are reserved", reserved)
		}
	}
	return nil
}
