// SPDX-License-Identifier: Apache-2.0

package proxiers

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// streams send datagrams without an answer, so that policies judge each of them: one after another from a pod that may
// reach x/a, and from one that may not.
type streams struct {
	allowed, denied net.Conn
	receiver        net.PacketConn
	sent            uint64
	lost, leaked    int
}

const (
	allowedStream = 0
	deniedStream  = 1
	streamPort    = 9
)

func newStreams(t *testing.T, w *proxiertest.PolicyWorld, f lab.Family) *streams {
	t.Helper()
	at := netip.AddrPortFrom(w.Pod("x/a").Addr(f), streamPort)
	s := &streams{}
	var err error
	if s.receiver, err = w.Pod("x/a").ListenPacket(t.Context(), "udp", at.String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.receiver.Close() })
	for from, conn := range map[string]*net.Conn{"x/b": &s.allowed, "y/b": &s.denied} {
		if *conn, err = w.Pod(from).Dial(t.Context(), "udp", netip.AddrPort{}, at); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = (*conn).Close() })
	}
	return s
}

// step sends a datagram on each, and waits for the allowed one.
func (s *streams) step() error {
	s.sent++
	if _, err := s.denied.Write(binary.BigEndian.AppendUint64([]byte{deniedStream}, s.sent)); err != nil {
		return err
	}
	if _, err := s.allowed.Write(binary.BigEndian.AppendUint64([]byte{allowedStream}, s.sent)); err != nil {
		return err
	}
	if err := s.receiver.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	for buf := make([]byte, 64); ; {
		n, _, err := s.receiver.ReadFrom(buf)
		switch {
		case err != nil:
			s.lost++
			return nil
		case n != 9:
			return fmt.Errorf("got %d bytes", n)
		case buf[0] == deniedStream:
			s.leaked++
		case binary.BigEndian.Uint64(buf[1:9]) == s.sent:
			return nil
		}
	}
}

// run sends until the context ends.
func (s *streams) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.step(); err != nil {
			return err
		}
	}
	return nil
}

// TestEnforcersChangeAtOnce: while policies, labels, pods and namespaces change, and as an enforcer starts again,
// nothing leaks and nothing is lost.
func TestEnforcersChangeAtOnce(t *testing.T) {
	changes := []func(*testing.T, *proxiertest.PolicyWorld) func(*store.Snapshot){
		func(t *testing.T, _ *proxiertest.PolicyWorld) func(*store.Snapshot) { // the peers are called by another name
			return proxiertest.Policies(proxiertest.Policy(t,
				"metadata: {namespace: x, name: own}\nspec: {podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: "+
					"{pod: b}}}]}]}"))
		},
		func(t *testing.T, _ *proxiertest.PolicyWorld) func(*store.Snapshot) { // one more policy for the pod, of another name
			return proxiertest.Policies(proxiertest.Policy(t, "metadata: {namespace: x, name: a}\nspec: {podSelector: {}}"),
				proxiertest.Policy(t, onlyOwnNamespace))
		},
		func(t *testing.T, _ *proxiertest.PolicyWorld) func(*store.Snapshot) { // the policy's place is taken by another
			return proxiertest.Policies(proxiertest.Policy(t,
				"metadata: {namespace: x, name: other}\nspec: {podSelector: {matchLabels: {pod: a}}, ingress: [{from: "+
					"[{ipBlock: {cidr: 10.244.1.0/24}}]}]}"))
		},
		func(_ *testing.T, w *proxiertest.PolicyWorld) func(*store.Snapshot) { // a pod goes, a label changes
			return func(s *store.Snapshot) {
				s.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(p *corev1.Pod) bool { return p.Name == "c" })
			}
		},
		func(_ *testing.T, w *proxiertest.PolicyWorld) func(*store.Snapshot) {
			return func(s *store.Snapshot) {
				s.Namespaces = slices.Clone(s.Namespaces)
				s.Namespaces[0] = s.Namespaces[0].DeepCopy()
				s.Namespaces[0].Labels["more"] = "yes"
			}
		},
	}
	eachEnforcer(t, func(t *testing.T, p spec.Proxier, w *proxiertest.PolicyWorld) {
		w.Apply(t, proxiertest.Policies(proxiertest.Policy(t, onlyOwnNamespace)))
		first := w.State
		s := newStreams(t, w, lab.V4)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.run(ctx) }()
		for i := range 20 {
			w.Apply(t, changes[i%len(changes)](t, w))
			if i%len(changes) == 0 {
				w.Instances[0] = proxiertest.Start(t, p, w.Places[0]) // over the rules of the former one
			}
			w.State = first
			w.Apply(t)
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if s.sent < 200 || s.lost > 0 || s.leaked > 0 {
			t.Errorf("of %d datagrams each %d were lost and %d leaked", s.sent, s.lost, s.leaked)
		}
		t.Logf("%d datagrams each", s.sent)
	})
}

// TestEnforcersCycles: policies come and go, each of another name, and nothing of them is left.
func TestEnforcersCycles(t *testing.T) {
	for _, p := range Enforcers() {
		t.Run(p.Name(), func(t *testing.T) {
			w := proxiertest.NewPolicyWorld(t, p, lab.Topology{PodNetwork: lab.Routed, Overlay: lab.Direct})
			w.Instances = w.Instances[:1]
			before := proxiertest.Holdings(t, w.Node("n1"))
			for i := range 200 {
				manifest := fmt.Sprintf("metadata: {namespace: x, name: p%d}\nspec: {podSelector: {}, ingress: [{from: "+
					"[{podSelector: {}}, {ipBlock: {cidr: 10.%d.%d.0/24}}]}]}", i, i/250, i%250)
				w.Apply(t, proxiertest.Policies(proxiertest.Policy(t, manifest)))
				w.Apply(t, proxiertest.Policies())
			}
			w.Apply(t, proxiertest.Policies(proxiertest.Policy(t, onlyOwnNamespace)))
			w.Apply(t, proxiertest.Policies())
			if after := proxiertest.Holdings(t, w.Node("n1")); !slices.Equal(after, before) {
				t.Errorf("before (-) and after (+):\n%s", proxiertest.Difference(before, after))
			}
		})
	}
}
