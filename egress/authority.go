package egress

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 24 * time.Hour
	leafSpare     = time.Hour // a leaf that has less left is made anew
	maxLeaves     = 256
	clockSkew     = time.Hour // a sandbox's clock may be behind
)

// Authority issues the certificates with which TLS is ended for one sandbox,
// and which only that sandbox trusts. The zero value is one that has not been
// made yet: that happens when it is first used. Its key is only in memory;
// Export is for who keeps it, sealed, so that the sandbox can be served by the
// next server, too.
type Authority struct {
	mu     sync.Mutex
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	leaves map[string]*tls.Certificate
}

// Certificate returns the authority's certificate as PEM: what the sandbox
// is to trust.
func (a *Authority) Certificate() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.make(); err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), nil
}

// Export returns the authority with its private key, for ImportAuthority.
func (a *Authority) Export() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.make(); err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("writing the authority's key: %w", err)
	}
	var b bytes.Buffer
	for _, p := range []*pem.Block{{Type: "CERTIFICATE", Bytes: a.cert.Raw}, {Type: "PRIVATE KEY", Bytes: key}} {
		if err := pem.Encode(&b, p); err != nil {
			return nil, fmt.Errorf("writing the authority: %w", err)
		}
	}
	return b.Bytes(), nil
}

// ImportAuthority reads what Export wrote. Its errors do not quote it.
func ImportAuthority(exported []byte) (*Authority, error) {
	cert, rest := pem.Decode(exported)
	key, _ := pem.Decode(rest)
	if cert == nil || key == nil || cert.Type != "CERTIFICATE" || key.Type != "PRIVATE KEY" {
		return nil, errors.New("this is no exported authority")
	}
	c, err := x509.ParseCertificate(cert.Bytes)
	if err != nil {
		return nil, errors.New("the authority's certificate cannot be read")
	}
	k, err := x509.ParsePKCS8PrivateKey(key.Bytes)
	if err != nil {
		return nil, errors.New("the authority's key cannot be read")
	}
	signer, ok := k.(*ecdsa.PrivateKey)
	if !ok || !c.IsCA || !signer.PublicKey.Equal(c.PublicKey) {
		return nil, errors.New("the authority's certificate and its key do not belong together")
	}
	return &Authority{key: signer, cert: c}, nil
}

// make makes the authority if it has not been made.
func (a *Authority) make() error {
	if a.cert != nil {
		return nil
	}
	// The certificate is read by the sandbox's clock, which is the machine's.
	now := time.Now()
	cert := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Brig"}, CommonName: "Brig egress of one sandbox"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	key, der, err := issue(cert, nil, nil)
	if err != nil {
		return err
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("reading the authority's certificate: %w", err)
	}
	a.key, a.cert = key, made
	return nil
}

// leaf returns a certificate for a name.
func (a *Authority) leaf(name string, now time.Time) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.leaves[name]; l != nil && now.Before(l.Leaf.NotAfter.Add(-leafSpare)) && now.After(l.Leaf.NotBefore) {
		return l, nil
	}
	if err := a.make(); err != nil {
		return nil, err
	}
	cert := &x509.Certificate{
		DNSNames:    []string{name},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if len(name) <= 64 { // what a common name has room for
		cert.Subject.CommonName = name
	}
	key, der, err := issue(cert, a.cert, a.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	if a.leaves == nil || len(a.leaves) >= maxLeaves {
		a.leaves = map[string]*tls.Certificate{}
	}
	l := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed}
	a.leaves[name] = l
	return l, nil
}

// issue makes a key and a certificate for it, which parent signs; without a
// parent it signs itself.
func issue(cert, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	cert.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("making a serial number: %w", err)
	}
	if parent == nil {
		parent, signer = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("signing a certificate: %w", err)
	}
	return key, der, nil
}
