// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func pod(name string, spec corev1.PodSpec) *corev1.Pod {
	if spec.NodeName = "n1"; len(spec.Containers) == 0 {
		spec.Containers = []corev1.Container{{Name: "c", Image: "echo"}}
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: spec}
}

func headless(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 8080}},
	}}
}

// TestContainersResolveNames: a program in a pod finds other pods by name, through the libc of this machine. Nothing
// here serves ClusterIPs, so the pod asks the DNS server's own address.
func TestContainersResolveNames(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := cluster.New(ctx, lab.Topology{Nodes: []lab.NodeSpec{{Name: "n1"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	apply := func(objects ...store.Object) {
		t.Helper()
		if err := c.Store().Apply(objects...); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitPods(ctx, "default"); err != nil {
			t.Fatal(err)
		}
	}
	echo := corev1.Container{Name: "c", Image: "echo", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}
	apply(
		pod("dns", corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: cluster.DNSImage}}}),
		pod("backend", corev1.PodSpec{Containers: []corev1.Container{echo}}), headless("backend"),
	)
	apply(
		pod("frontend", corev1.PodSpec{Hostname: "front", DNSPolicy: corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{
			Nameservers: []string{c.Lab().Pod("default/dns").Addr(lab.V4).String()},
			Searches:    []string{"default.svc.cluster.local", "svc.cluster.local"},
			Options:     []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr("5")}},
		}}),
		// Of the cluster's DNS there is nothing but its Service.
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"}, Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.10", Ports: []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}},
		}},
		pod("ordinary", corev1.PodSpec{DNSConfig: &corev1.PodDNSConfig{
			Searches: []string{"example.org"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr("2")},
				{Name: "edns0"}},
		}}),
	)
	machines, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	backend := c.Lab().Pod("default/backend").Addr(lab.V4).String()
	for _, x := range []struct {
		pod, command string
		want         string
	}{
		{"frontend", "getent ahostsv4 backend", backend},
		{"frontend", "getent ahostsv4 backend.default", backend},
		{"frontend", "getent hosts front", c.Lab().Pod("default/frontend").Addr(lab.V4).String()},
		{"frontend", "curl --silent --max-time 20 http://backend:8080/hello", `"server":"default/backend"`},
		{"frontend", "curl --silent --max-time 20 http://backend:8080/hello", `"nonce":"/hello"`},
		{"ordinary", "cat /etc/resolv.conf", "nameserver 10.96.0.10\n" +
			"search default.svc.cluster.local svc.cluster.local cluster.local example.org\noptions ndots:2 edns0\n"},
	} {
		t.Run(x.pod+": "+x.command, func(t *testing.T) {
			argv := strings.Fields(x.command)
			if _, err := exec.LookPath(argv[0]); err != nil {
				t.Skip(err)
			}
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := c.Run("default", x.pod, cmd); err != nil || !strings.Contains(out.String(), x.want) {
				t.Errorf("%v, %q, want %q", err, out.String(), x.want)
			}
		})
	}
	if err := c.Run("default", "nobody", exec.Command("true")); err == nil {
		t.Error("a command ran in a pod that does not exist")
	}
	if now, err := os.ReadFile("/etc/hosts"); err != nil || string(now) != string(machines) {
		t.Errorf("the machine's /etc/hosts was changed: %v", err)
	}
}

func ptr[T any](v T) *T { return &v }
