package image

import (
	"encoding/hex"
	"strings"

	"github.com/brig-run/brig"
)

const digestPrefix = "sha256:"

func isDigest(ref string) bool { return strings.HasPrefix(ref, digestPrefix) }

// checkDigest accepts only "sha256:" followed by 64 lower-case hex digits. Such
// a digest is safe as part of a path.
func checkDigest(digest string) error {
	h, ok := strings.CutPrefix(digest, digestPrefix)
	if _, err := hex.DecodeString(h); !ok || err != nil || len(h) != 64 || h != strings.ToLower(h) {
		return brig.InvalidField("image", "%.80q is not a digest: sha256: and 64 hex digits", digest)
	}
	return nil
}

// checkRef rejects a string that is not a name, a reference to an image of a
// registry, or a digest.
func checkRef(ref string) error {
	if isDigest(ref) {
		return checkDigest(ref)
	}
	if brig.ValidName(ref) {
		return nil
	}
	if _, err := parseReference(ref); err != nil {
		return brig.InvalidField("image", "%.80q is not the name of an image", ref).
			WithHint("a name is 1 to 63 of a-z, 0-9 and \"-\"; a reference is for example python:3.11-slim; a digest is sha256: and 64 hex digits")
	}
	return nil
}

// checkNewName rejects names that a client may not give to an image.
func checkNewName(name string) error {
	if name == brig.HostImage {
		return brig.InvalidField("name", "%q is this machine's own image", name).WithHint("pick another name")
	}
	if !brig.ValidName(name) {
		return brig.InvalidField("name", "%.80q cannot name an image", name).
			WithHint("a name is 1 to 63 of a-z, 0-9 and \"-\", and does not begin with \"-\"")
	}
	return nil
}

// unknownImageError returns a NotFound error for ref, with a hint.
func unknownImageError(ref string) *brig.Error {
	pull := "python:3.11-slim"
	if !isDigest(ref) {
		pull = ref
	}
	return brig.Errorf(brig.NotFound, "no image %s", ref).
		WithHint("pull it (brig image pull %s), or list the images that exist (brig image ls)", pull)
}
