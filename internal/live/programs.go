// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/viplab/viplab/internal/release"
	"github.com/viplab/viplab/lab/cluster/container"
	"github.com/viplab/viplab/lab/cluster/kubelet"
)

// Agnhost is the program of Kubernetes' image agnhost: servers and clients for its tests.
var Agnhost = release.Command{
	Name: "agnhost", Version: release.Default, Package: "k8s.io/kubernetes/test/images/agnhost",
}

// regression74839 is the program of another image of Kubernetes' tests: a server of TCP that answers with a packet that
// is out of the window (https://issues.k8s.io/74839).
var regression74839 = release.Command{
	Name: "regression-issue-74839", Version: release.Default,
	Package: "k8s.io/kubernetes/test/images/regression-issue-74839",
}

// CoreDNS is the DNS server of most clusters. Images of Kubernetes' tests have it, too.
var CoreDNS = release.Command{
	Name: "coredns", Version: "v1.15.0", Module: "github.com/coredns/coredns", Package: "github.com/coredns/coredns",
}

// Programs returns the commands that are built when a container names their images.
func Programs() []release.Command { return []release.Command{Agnhost, regression74839, CoreDNS} }

// programs returns the images whose programs are built when a container names them, with the files of this machine.
// folder is for files that belong to images.
func programs(b *builds, folder string) (kubelet.Images, error) {
	agnhost, err := programImage(b, Agnhost)
	if err != nil {
		return nil, err
	}
	regression, err := programImage(b, regression74839)
	if err != nil {
		return nil, err
	}
	dns, err := programImage(b, CoreDNS)
	if err != nil {
		return nil, err
	}
	files, err := certificate(folder)
	if err != nil {
		return nil, err
	}
	agnhost.Args = []string{"pause"}
	agnhost.Mounts = append(agnhost.Mounts, files...)
	wgetrc, err := onlyTry(folder)
	if err != nil {
		return nil, err
	}
	agnhost.Mounts = append(agnhost.Mounts, wgetrc)
	agnhost.Programs = map[string]kubelet.Image{dns.Command[0]: dns}
	return kubelet.Images{"agnhost": agnhost, regression74839.Name: regression, CoreDNS.Name: dns}, nil
}

// programImage returns the image of a command, which is in its root folder.
func programImage(b *builds, c release.Command) (kubelet.Image, error) {
	path, err := c.Path()
	return kubelet.Image{
		Command: []string{"/" + c.Name},
		Mounts:  []container.Mount{{Source: path, Target: "/" + c.Name, ReadOnly: true}},
		Provide: func(ctx context.Context, progress func(string)) error { return b.provide(ctx, c, progress) },
	}, err
}

// onlyTry makes the settings with which wget tries once, as that of the image does, not 20 times as GNU's.
func onlyTry(folder string) (container.Mount, error) {
	path := filepath.Join(folder, "wgetrc")
	return container.Mount{Source: path, Target: "/etc/wgetrc", ReadOnly: true},
		os.WriteFile(path, []byte("tries = 1\n"), 0o644)
}

// certificate makes the files localhost.crt and localhost.key, with which servers of agnhost begin TLS.
func certificate(folder string) ([]container.Mount, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotAfter: time.Unix(1<<32, 0), // the lab's clock may be another one
	}
	crt, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var out []container.Mount
	for name, block := range map[string]*pem.Block{
		"localhost.crt": {Type: "CERTIFICATE", Bytes: crt}, "localhost.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o644); err != nil {
			return nil, err
		}
		out = append(out, container.Mount{Source: path, Target: "/" + name, ReadOnly: true})
	}
	return out, nil
}
