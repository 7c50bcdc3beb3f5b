package redisd

import (
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
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// Files of a server that serves TLS, in its directory.
const (
	certificateFile = "certificate.pem"
	keyFile         = "key.pem"
)

// SelfSigned makes a certificate for 127.0.0.1, signed by itself, and its key. It is good for an hour on either side
// of now.
func SelfSigned() (pair tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, err
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "redisd"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		return pair, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// PEM is a pair's certificate as a file of trusted certificates has it.
func PEM(pair tls.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
}

// CanTrust reports whether Trust works on this system.
const CanTrust = runtime.GOOS != "windows" && runtime.GOOS != "darwin" && runtime.GOOS != "ios"

// Trust adds a pair's certificate to those that this process trusts as the system's. A process loads these once, so it
// must be called once, before any other use of TLS.
func Trust(pair tls.Certificate) error {
	if !CanTrust {
		return errors.New("redisd: this system's trusted certificates are not set by SSL_CERT_FILE")
	}
	f, err := os.CreateTemp("", "trusted")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(PEM(pair))
	if err := errors.Join(err, f.Close(), os.Setenv("SSL_CERT_FILE", f.Name())); err != nil {
		return err
	}
	roots, err := x509.SystemCertPool() // loads them
	if err != nil {
		return err
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots}); err != nil {
		return fmt.Errorf("redisd: the trusted certificates were loaded before: %w", err)
	}
	return nil
}

// writePair writes what redis-server reads.
func writePair(dir string, pair tls.Certificate) error {
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return fmt.Errorf("redisd: key of the certificate: %w", err)
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	if err := os.WriteFile(filepath.Join(dir, keyFile), keyPEM, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, certificateFile), PEM(pair), 0o600)
}
