// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/api"
	"github.com/viplab/viplab/lab/cluster/dns"
	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/sandbox"
)

// The addresses of the servers.
var (
	ours   = netip.MustParseAddrPort("127.0.0.2:53")
	theirs = netip.MustParseAddrPort("127.0.0.3:53")
)

// corefile is that of kubeadm (cmd/kubeadm/app/phases/addons/dns/manifests.go) with the plugin's own ttl, and without
// what concerns names outside the cluster and a pod of CoreDNS. So CoreDNS refuses names outside, as the lab's DNS
// does.
const corefile = `cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {
    bind 127.0.0.3
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig %s
        pods insecure
    }
}
`

//go:embed cluster.yaml
var clusterManifest []byte

// world is a namespace with both servers.
type world struct {
	ns      *netns.NS
	state   *store.Store
	closers []func() error // in the order of calls
}

func newWorld(ctx context.Context) (*world, error) {
	w := &world{state: store.New(store.Config{Stack: lab.Dual})}
	err := w.fill()
	if err == nil {
		err = w.serve(ctx)
	}
	if err == nil {
		err = w.startCoreDNS(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) close() error {
	var errs []error
	for _, f := range slices.Backward(w.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// fill makes the objects: those of the manifest, a pod that is not ready, and too many endpoints for UDP.
func (w *world) fill() error {
	objects, err := manifest.Decode("cluster.yaml", clusterManifest)
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "early-0", Labels: map[string]string{"app": "early"}},
		Spec: corev1.PodSpec{NodeName: "n1", Hostname: "early-0", Subdomain: "early",
			Containers: []corev1.Container{{Name: "c", Image: cluster.PauseImage}}},
	}
	big := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "big-1", Labels: map[string]string{discoveryv1.LabelServiceName: "big"}}}
	for i := range 100 {
		big.Endpoints = append(big.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.7.%d", i+1)}})
	}
	name, port, proto := "http", int32(80), corev1.ProtocolTCP
	big.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}}
	if err := w.state.Apply(append(objects, node, pod, big)...); err != nil {
		return err
	}
	return store.UpdateStatus(w.state, "shop", "early-0", store.ReportRunning(false, netip.MustParseAddr("10.244.8.2")))
}

// serve starts the lab's DNS.
func (w *world) serve(ctx context.Context) (err error) {
	if w.ns, err = netns.New("dns"); err != nil {
		return err
	}
	w.closers = append(w.closers, w.ns.Close)
	if err := w.ns.Do(sandbox.LoopbackUp); err != nil {
		return err
	}
	server, err := dns.Serve(ctx, w.ns, "lab", []netip.Addr{ours.Addr()}, w.state)
	if err != nil {
		return err
	}
	w.closers = append(w.closers, server.Close)
	return nil
}

// startCoreDNS starts CoreDNS and waits until it knows the cluster.
func (w *world) startCoreDNS(ctx context.Context) error {
	dir, err := sandbox.TempDir("dnsdiff-")
	if err != nil {
		return err
	}
	w.closers = append(w.closers, func() error { return os.RemoveAll(dir) })
	server := api.New(w.state)
	w.closers = append(w.closers, server.Close)
	endpoint, err := server.Serve(ctx, w.ns, "127.0.0.1:0")
	if err != nil {
		return err
	}
	kubeconfig, conf := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "Corefile")
	if err := errors.Join(os.WriteFile(kubeconfig, endpoint.Kubeconfig(), 0o600),
		os.WriteFile(conf, fmt.Appendf(nil, corefile, kubeconfig), 0o600)); err != nil {
		return err
	}
	path, err := live.CoreDNS.Path()
	if err != nil {
		return err
	}
	cmd := exec.Command(path, "-conf", conf, "-quiet")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := w.ns.Start(cmd); err != nil {
		return err
	}
	w.closers = append(w.closers, func() error {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
		return nil
	})
	const startLimit = time.Minute
	ctx, cancel := context.WithTimeout(ctx, machine.Limit(startLimit))
	defer cancel()
	err = observe.Await(ctx, nil, func(ctx context.Context) error {
		// Before it has read the API, it answers SERVFAIL for names that it does not know.
		q := question{name: "nobody.shop.svc.cluster.local.", kind: dnsmessage.TypeA, proto: "udp"}
		r := w.exchange(ctx, theirs, q)
		if r["code"] != "NXDOMAIN" {
			return fmt.Errorf("it answers %v", r)
		}
		return nil
	})
	if err != nil {
		said, _ := os.ReadFile(log.Name()) // whatever it is, it helps
		return fmt.Errorf("%s does not serve: %w\n%s", live.CoreDNS, err, said)
	}
	return nil
}
