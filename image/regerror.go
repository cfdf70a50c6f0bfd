package image

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/brig-run/brig"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// errTruncated reports that a registry sent less data than it had announced.
var errTruncated = errors.New("it was cut short")

// isTemporary reports whether an error of a registry is temporary.
func isTemporary(err error) bool {
	var answer *transport.Error
	if errors.As(err, &answer) {
		return answer.Temporary() || answer.StatusCode >= 500
	}
	if errors.Is(err, errPlain) || errors.Is(err, errNotPublic) || errors.Is(err, errLarge) {
		return false
	}
	var nerr net.Error
	return errors.Is(err, errTruncated) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.As(err, &nerr)
}

// explainPull converts a registry error into one for the caller. The registry's
// own message goes only to the log.
func explainPull(ctx context.Context, ref reference, reg *registry, p brig.ImagePull, err error) error {
	what, where := clip(ref.shortName()), clip(registryName(reg.repo.RegistryStr()))
	var answer *transport.Error
	var ours *brig.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &ours):
		if ours.Field != "archive" {
			return ours
		}
		e := *ours // the field "archive" of an import is the field "ref" of a pull
		e.Field = "ref"
		if e.Kind == brig.InvalidArgument {
			e.Message = "image " + what + ": " + e.Message
		}
		return &e
	case errors.Is(err, errNotPublic):
		return brig.Errorf(brig.PolicyBlocked, "registry %s is not at a public address", where).
			WithHint("name it in images.registries, or pull the image first: brig image pull %s", what).Because(err)
	case errors.Is(err, errPlain):
		return brig.InvalidField("ref", "registry %s has plain HTTP only, or none that can be trusted", where).
			WithHint("use insecure to permit it").Because(err)
	case errors.Is(err, errLarge):
		return brig.InvalidField("ref", "image %s: its manifest is larger than %d bytes", what, maxConfig).Because(err)
	case errors.As(err, &answer):
		return explainAnswer(what, where, p, answer)
	case isTemporary(err):
		return brig.Errorf(brig.ConnectionFailed, "registry %s cannot be reached, or breaks off", where).
			WithHint("try again; brig image import takes archives of images, too").Because(err)
	}
	var fault *wrongContent
	if errors.As(err, &fault) {
		return brig.InvalidField("ref", "image %s: %s", what, fault.Error())
	}
	return brig.Errorf(brig.ConnectionFailed, "registry %s sent an invalid response", where).
		WithHint("the server's log has the response").Because(err)
}

func explainAnswer(what, where string, p brig.ImagePull, answer *transport.Error) error {
	denied := answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden
	for _, d := range answer.Errors {
		denied = denied || d.Code == transport.UnauthorizedErrorCode || d.Code == transport.DeniedErrorCode
	}
	switch {
	case denied && p.Username+p.Password != "":
		return brig.InvalidField("username", "registry %s does not accept these credentials for %s", where, what).
			WithHint("check user name and password, and that the image is there").Because(answer)
	case denied:
		return brig.InvalidField("ref", "registry %s has no public image %s", where, what).
			WithHint("check the name, or give a user name and a password").Because(answer)
	case answer.StatusCode == http.StatusNotFound:
		return brig.Errorf(brig.NotFound, "registry %s has no image %s", where, what).
			WithHint("check the name and the tag").Because(answer)
	case answer.StatusCode == http.StatusTooManyRequests:
		return brig.Errorf(brig.RateLimited, "registry %s wants fewer requests", where).
			WithHint("wait, or give a user name and a password").Because(answer)
	}
	return brig.Errorf(brig.ConnectionFailed, "registry %s answers with status %d", where, answer.StatusCode).
		WithHint("try again later").Because(answer)
}

// wrongContent reports that content from a registry does not match its digest.
type wrongContent struct{ what, want, got string }

// Error implements error.
func (w *wrongContent) Error() string {
	return w.what + " should have the digest " + w.want + " and has " + w.got
}
