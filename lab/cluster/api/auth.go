// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// authorized reports whether a request carries the token, or one of a ServiceAccount. Either may do everything.
func (s *Server) authorized(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	if subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1 {
		return true
	}
	_, err := s.store.CheckToken(token)
	return err == nil
}

// authority signs the certificates of listeners. Its key is never written anywhere.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// Certificates are valid at any time, because a lab lives through jumps of the machine's clock. The last second of the
// year 9999 means that there is no end (RFC 5280, section 4.1.2.5).
var (
	certificateBegin = time.Unix(0, 0)
	certificateEnd   = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
)

func newAuthority() *authority {
	template := certificateFor("viplab-ca")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	key := newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err) // a constant template
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err) // just made
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &authority{certificate: certificate, key: key, pem: text}
}

// issue makes a certificate for a listener on an address, and for the Service default/kubernetes, whose ClusterIPs are
// the first of the ranges.
func (a *authority) issue(host string, ranges ...netip.Prefix) (tls.Certificate, error) {
	template := certificateFor("kube-apiserver")
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
	}
	for _, p := range ranges {
		template.IPAddresses = append(template.IPAddresses, p.Masked().Addr().Next().AsSlice())
	}
	key := newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate for %s: %w", host, err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func certificateFor(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system has no random numbers
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: []string{"viplab"}},
		NotBefore:    certificateBegin,
		NotAfter:     certificateEnd,
	}
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // the system has no random numbers
	}
	return key
}
