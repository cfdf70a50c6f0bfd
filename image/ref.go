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

// checkRef refuses what can be neither a name nor a digest. It admits more
// than a name that Import takes, so that "python:3.11-slim" is answered with
// "not found" and what to do, and not with a syntax lesson.
func checkRef(ref string) error {
	if isDigest(ref) {
		return checkDigest(ref)
	}
	ok := len(ref) > 0 && len(ref) <= 255 && !strings.ContainsRune("-._:/", rune(ref[0])) &&
		strings.Trim(ref, "abcdefghijklmnopqrstuvwxyz0123456789-._:/") == ""
	if !ok {
		return brig.InvalidField("image", "%.80q is not the name of an image", ref).
			WithHint("a name is 1 to 63 of a-z, 0-9 and \"-\"; a digest is sha256: and 64 hex digits")
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
	return brig.Errorf(brig.NotFound, "there is no image %s", ref).
		WithHint("use the image %q, build one (brig image build debian NAME PACKAGE...), or import a root file system (brig image import NAME FILE); brig image list shows what there is", brig.HostImage)
}
