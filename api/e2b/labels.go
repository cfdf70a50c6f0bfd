package e2b

import (
	"cmp"
	"strings"

	"github.com/brig-run/brig"
)

// reservedPrefix is the prefix of the API's own labels. All other labels are E2B
// metadata.
const reservedPrefix = "brig.e2b/"

// Labels in which the API stores the request that created a sandbox.
const (
	labelAPI      = reservedPrefix + "door" // set on sandboxes that this API created
	labelTemplate = reservedPrefix + "template"
	labelAlias    = reservedPrefix + "alias" // the template's name, if that is not its ID
	labelPublic   = reservedPrefix + "allow-public-traffic"
	labelMask     = reservedPrefix + "mask-request-host"
	labelHTTPS    = reservedPrefix + "https-ports"
	labelNetwork  = reservedPrefix + "network" // the network object of the request
	labelOpen     = reservedPrefix + "unsecured"
	labelResume   = reservedPrefix + "auto-resume" // traffic resumes the paused sandbox

	labelSnapshot     = reservedPrefix + "snapshot"      // set on snapshots
	labelSnapshotOf   = reservedPrefix + "snapshot-of"   // ID of the sandbox that was copied
	labelSnapshotName = reservedPrefix + "snapshot-name" // name of a snapshot
)

// Environment variables that E2B guarantees in every sandbox.
const (
	envMark     = "E2B_SANDBOX"
	envID       = "E2B_SANDBOX_ID"
	envTemplate = "E2B_TEMPLATE_ID"
)

// aliasOf returns the name of a sandbox's template.
func aliasOf(s *brig.Sandbox) string {
	return cmp.Or(s.Spec.Labels[labelAlias], s.Spec.Labels[labelTemplate])
}

// createdByAPI reports whether this API created s.
func createdByAPI(s *brig.Sandbox) bool { return s.Spec.Labels[labelAPI] != "" }

// IsSandbox reports whether this API created s, so that clients see it as a sandbox.
func IsSandbox(s *brig.Sandbox) bool { return createdByAPI(s) }

// metadata returns the labels that are not the API's own.
func metadata(labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		if !strings.HasPrefix(k, reservedPrefix) {
			out[k] = v
		}
	}
	return out
}

// checkMetadata returns an error if m contains a label key that is reserved for
// the API.
func checkMetadata(m map[string]string) error {
	for k := range m {
		if strings.HasPrefix(k, reservedPrefix) {
			return brig.InvalidField("metadata", "keys that begin with %s are reserved", reservedPrefix)
		}
	}
	return nil
}
