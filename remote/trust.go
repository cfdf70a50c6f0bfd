package remote

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/brig-run/brig"
)

// ErrPin means that a service presented a certificate other than the pinned
// one.
var ErrPin = errors.New("its certificate is not the one that is pinned")

// ParsePin parses a pin: the SHA-256 of a certificate's public key (its
// SubjectPublicKeyInfo) in hexadecimal or base64, optionally with curl's prefix
// "sha256//". It returns nil for an empty string.
func ParsePin(field, s string) ([]byte, error) {
	s = strings.TrimPrefix(strings.TrimSpace(s), "sha256//")
	if s == "" {
		return nil, nil
	}
	b, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
	if err != nil || len(b) != sha256.Size {
		b, err = base64.StdEncoding.DecodeString(s)
	}
	if err != nil || len(b) != sha256.Size {
		return nil, brig.InvalidField(field, "it is not a SHA-256").
			WithHint("give 64 hexadecimal digits, or base64, of the SHA-256 of the certificate's public key")
	}
	return b, nil
}

// CheckAuthority returns an error if the text contains no certificate. An empty
// text is valid.
func CheckAuthority(field, pem string) error {
	if strings.TrimSpace(pem) != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(pem)) {
		return brig.InvalidField(field, "it contains no certificate").WithHint("give certificates in PEM")
	}
	return nil
}

// newTLSConfig returns the TLS configuration of a client. A pin restricts the trust
// in authorities and does not extend it.
func newTLSConfig(pin, authority string) (*tls.Config, error) {
	want, err := ParsePin("pin_sha256", pin)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if strings.TrimSpace(authority) != "" {
		if err := CheckAuthority("authority", authority); err != nil {
			return nil, err
		}
		if c.RootCAs, err = x509.SystemCertPool(); err != nil {
			c.RootCAs = x509.NewCertPool()
		}
		c.RootCAs.AppendCertsFromPEM([]byte(authority))
	}
	if want == nil {
		return c, nil
	}
	// The TLS package calls this for resumed connections as well.
	c.VerifyConnection = func(s tls.ConnectionState) error {
		for _, chain := range s.VerifiedChains {
			for _, cert := range chain {
				if got := sha256.Sum256(cert.RawSubjectPublicKeyInfo); string(got[:]) == string(want) {
					return nil
				}
			}
		}
		return ErrPin
	}
	return c, nil
}
