// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/internal/release"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/sandbox"
)

// commands are the programs of a control plane.
func commands(version string) []release.Command {
	return []release.Command{
		{Name: "etcd", Version: version, Package: "go.etcd.io/etcd/server/v3"},
		{Name: "kube-apiserver", Version: version},
		{Name: "kube-controller-manager", Version: version},
	}
}

// startLimit bounds the start of a control plane, which takes 10 seconds on two free cores.
const startLimit = 2 * time.Minute

const (
	token    = "apidiff"
	etcdURL  = "http://127.0.0.1:2379"
	peerURL  = "http://127.0.0.1:2380"
	apiPort  = "6443"
	apiURL   = "https://127.0.0.1:" + apiPort
	families = "10.96.0.0/16,fd00:10:96::/112"
)

// kubernetes is a control plane that runs in this sandbox, and ends with it.
type kubernetes struct {
	dir      string
	programs []*program
}

type program struct {
	cmd   *exec.Cmd
	log   *os.File
	ended chan struct{}
}

func startKubernetes(ctx context.Context, version string) (*side, error) {
	dir, err := sandbox.TempDir("apidiff-")
	if err != nil {
		return nil, err
	}
	k := &kubernetes{dir: dir}
	s := &side{name: "kubernetes " + version, url: apiURL, token: token, client: insecure(), stop: k.stop}
	if err := k.start(ctx, s, version); err != nil {
		k.stop()
		return nil, err
	}
	return s, nil
}

func (k *kubernetes) start(ctx context.Context, s *side, version string) error {
	if err := k.writeFiles(); err != nil {
		return err
	}
	file := func(name string) string { return filepath.Join(k.dir, name) }
	arguments := [][]string{
		{"--data-dir=" + file("etcd"), "--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
			"--listen-peer-urls=" + peerURL, "--unsafe-no-fsync"},
		{"--etcd-servers=" + etcdURL, "--secure-port=" + apiPort, "--bind-address=127.0.0.1",
			"--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none", "--cert-dir=" + file("certs"),
			"--token-auth-file=" + file("tokens"), "--authorization-mode=AlwaysAllow",
			"--service-cluster-ip-range=" + families, "--allow-privileged",
			// Pods need no service account, and no such account's token.
			"--disable-admission-plugins=ServiceAccount",
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + file("key"),
			"--service-account-signing-key-file=" + file("key")},
		{"--kubeconfig=" + file("kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1",
			"--service-cluster-ip-range=" + families, "--use-service-account-credentials=false"},
	}
	ready := []func() error{
		func() error { return healthy(ctx, http.DefaultClient, etcdURL+"/health") },
		func() error { return k.serves(ctx, s) },
		func() error { return nil },
	}
	for i, c := range commands(version) {
		path, err := c.Path()
		if err != nil {
			return err
		}
		p, err := start(path, file(c.Name+".log"), arguments[i]...)
		if err != nil {
			return err
		}
		k.programs = append(k.programs, p)
		if err := p.await(ctx, ready[i]); err != nil {
			said, _ := os.ReadFile(p.log.Name()) // whatever it is, it helps
			return fmt.Errorf("%s does not serve: %w\n%s", c, err, said)
		}
	}
	return nil
}

// writeFiles makes what the programs read.
func (k *kubernetes) writeFiles() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}],
		"users": [{"name": "u", "user": {"token": %q}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}`, apiURL, token)
	var errs []error
	for name, data := range map[string][]byte{
		"key": encoded, "kubeconfig": []byte(config), "tokens": []byte(token + `,admin,admin,"system:masters"` + "\n"),
	} {
		errs = append(errs, os.WriteFile(filepath.Join(k.dir, name), data, 0o600))
	}
	return errors.Join(errs...)
}

// serves returns nil once the API is ready and has its first namespace.
func (k *kubernetes) serves(ctx context.Context, s *side) error {
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default"} {
		got, err := s.do(ctx, request{method: http.MethodGet, path: path})
		if err != nil {
			return err
		}
		if got.code != http.StatusOK {
			return fmt.Errorf("%s: status %d", path, got.code)
		}
	}
	return nil
}

func healthy(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// start starts a program that ends with the sandbox.
func start(path, log string, args ...string) (*program, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	p := &program{cmd: exec.Command(path, args...), log: file, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = file, file
	if err := p.cmd.Start(); err != nil {
		file.Close()
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// await waits until ready returns nil.
func (p *program) await(ctx context.Context, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, machine.Limit(startLimit))
	defer cancel()
	return observe.Await(ctx, nil, func(context.Context) error {
		select {
		case <-p.ended:
			cancel()
			return fmt.Errorf("it has ended: %s", p.cmd.ProcessState)
		default:
			return ready()
		}
	})
}

func (k *kubernetes) stop() {
	for _, p := range k.programs {
		p.cmd.Process.Signal(unix.SIGKILL)
		<-p.ended
		p.log.Close()
	}
	os.RemoveAll(k.dir)
}
