package image

import (
	"encoding/hex"
	"strings"

	"github.com/brig-run/brig"
)

const digestPrefix = "sha256:"

func isDigest(ref string) bool { return strings.HasPrefix(ref, digestPrefix) }

// checkDigest refuses what is not "sha256:" and 64 lower-case hex digits; such
// a digest is safe as part of a path.
func checkDigest(digest string) error {
	h, ok := strings.CutPrefix(digest, digestPrefix)
	if _, err := hex.DecodeString(h); !ok || err != nil || len(h) != 64 || h != strings.ToLower(h) {
		return brig.InvalidField("image", "%.80q is not a digest: sha256: and 64 hex digits", digest)
	}
	return nil
}

// checkRef refuses what can be neither a name, nor a reference to an image of
// a registry, nor a digest.
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

// checkNewName refuses what an image may not be given as a name.
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

// unknown says that there is no such image, and what to do about it.
func unknown(ref string) *brig.Error {
	pull := "python:3.11-slim"
	if !isDigest(ref) {
		pull = ref
	}
	return brig.Errorf(brig.NotFound, "there is no image %s", ref).
		WithHint("use the image %q, pull one (brig image pull %s), build one (brig image build debian NAME --packages ...), or import a root file system (brig image import NAME FILE); brig image ls shows what there is", brig.HostImage, pull)
}
