// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func newDeployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: app(name)},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app(name)}, Spec: newPod("", "", nil).Spec},
		},
	}
}

func podNames(s *Store) []string {
	var out []string
	for _, p := range s.Snapshot().Pods {
		out = append(out, p.Name)
	}
	return out
}

// The cluster of an article about Services, from its own manifests.
func TestSeedCluster(t *testing.T) {
	s := newTestStore(t, Config{}, "minikube", "minikube-m02")
	for _, file := range []string{"frontend-deployment.yaml", "backend-deployment.yaml", "services.yaml"} {
		apply(t, s, decodeFile(t, file)...)
	}
	snapshot := s.Snapshot()
	if len(snapshot.Pods) != 4 || len(snapshot.Services) != 2 || len(snapshot.EndpointSlices) != 2 {
		t.Fatalf("%d pods, %d services, %d slices", len(snapshot.Pods), len(snapshot.Services), len(snapshot.EndpointSlices))
	}
	for i, p := range snapshot.Pods {
		report(t, s, p.Name, true, fmt.Sprintf("10.244.120.%d", 109+i))
	}
	if got := len(only(t, s, "frontend", "IPv4").Endpoints); got != 2 {
		t.Errorf("%d endpoints of frontend, want 2", got)
	}
	ip := get[*corev1.Service](t, s, "frontend").Spec.ClusterIP
	for _, file := range []string{"nodeport.yaml", "nodeport-local.yaml", "networkpolicy.yaml"} {
		apply(t, s, decodeFile(t, file)...)
	}
	svc := get[*corev1.Service](t, s, "frontend").Spec
	if svc.ClusterIP != ip || svc.Ports[0].NodePort != 31380 || svc.ExternalTrafficPolicy != "Local" ||
		svc.HealthCheckNodePort != 0 {
		t.Errorf("frontend became %+v", svc)
	}
	var backend []*corev1.Pod
	for _, p := range s.Snapshot().Pods {
		if p.Labels["networking/allow-db-access"] == "true" {
			backend = append(backend, p)
		}
	}
	if len(backend) != 1 || backend[0].Spec.InitContainers[0].Name != "install" {
		t.Errorf("%d backend pods", len(backend))
	}
}

func TestDeploymentPods(t *testing.T) {
	s := newTestStore(t, Config{}, "n1", "n2")
	apply(t, s, newDeployment("web", 4))
	perNode := map[string]int{}
	for _, p := range s.Snapshot().Pods {
		perNode[p.Spec.NodeName]++
		c := metav1.GetControllerOf(p)
		if !strings.HasPrefix(p.Name, "web-") || c == nil || c.Kind != "ReplicaSet" || c.Name != "web-"+p.Labels["pod-template-hash"] {
			t.Errorf("pod %s: labels %v, controller %v", p.Name, p.Labels, c)
		}
	}
	checkSame(t, "pods per node", perNode, map[string]int{"n1": 2, "n2": 2})

	// The same again elsewhere gives the same names.
	other := newTestStore(t, Config{}, "n1", "n2")
	apply(t, other, newDeployment("web", 4))
	names := podNames(s)
	checkSame(t, "names", podNames(other), names)

	// A pod that goes is replaced, under another name; its node is where one is missing.
	gone := get[*corev1.Pod](t, s, names[0])
	if err := s.Delete("Pod", "default", gone.Name); err != nil {
		t.Fatal(err)
	}
	after := podNames(s)
	if len(after) != 4 || slices.Contains(after, gone.Name) {
		t.Errorf("pods %q after %s went", after, gone.Name)
	}
	// A terminating pod does not count any more, but stays.
	if err := s.Terminate("default", after[0], false); err != nil {
		t.Fatal(err)
	}
	if n := len(podNames(s)); n != 5 {
		t.Errorf("%d pods while one terminates, want 5", n)
	}
	// What is not ready cannot go on serving.
	if err := s.Terminate("default", after[1], true); err == nil || !strings.Contains(err.Error(), "it is not ready") {
		t.Errorf("Terminate of a pod that is not ready, serving: %v", err)
	}
	// Scaling down gives up pods that are not ready first.
	report(t, s, after[1], true, "10.244.1.1")
	apply(t, s, newDeployment("web", 1))
	checkSame(t, "pods left", podNames(s), slices.Sorted(slices.Values(after[:2])))
	if d := get[*appsv1.Deployment](t, s, "web").Status; d.Replicas != 1 || d.ReadyReplicas != 1 {
		t.Errorf("status %+v", d)
	}
	if err := s.Delete("Deployment", "default", "web"); err != nil {
		t.Fatal(err)
	}
	if left := podNames(s); len(left) > 0 {
		t.Errorf("pods left: %q", left)
	}
}

func TestScalingDownKeepsTheOldest(t *testing.T) {
	now := epoch
	s := New(Config{Now: func() time.Time { now = now.Add(time.Second); return now }})
	apply(t, s, newNode("n1", ""))
	apply(t, s, newDeployment("web", 1))
	first := podNames(s)
	apply(t, s, newDeployment("web", 8))
	apply(t, s, newDeployment("web", 1))
	checkSame(t, "pods left", podNames(s), first)
}

func TestScheduling(t *testing.T) {
	s := newTestStore(t, Config{})
	apply(t, s, newDeployment("web", 2)) // no nodes yet
	for _, p := range s.Snapshot().Pods {
		if p.Spec.NodeName != "" {
			t.Fatalf("pod %s is on %q, but there is no node", p.Name, p.Spec.NodeName)
		}
	}
	tainted := newNode("a-tainted", "")
	tainted.Spec.Taints = []corev1.Taint{{Key: "role", Value: "cp", Effect: "NoSchedule"}}
	closed := newNode("b-closed", "")
	closed.Spec.Unschedulable = true
	special := newNode("special", "")
	special.Labels = map[string]string{"disk": "ssd"}
	apply(t, s, tainted, closed, newNode("n1", ""), special)
	tolerant := newPod("tolerant", "", nil)
	tolerant.Spec.Tolerations = []corev1.Toleration{{Key: "role", Operator: "Equal", Value: "cp"}}
	picky := newPod("picky", "", nil)
	picky.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	impossible := newPod("impossible", "", nil)
	impossible.Spec.NodeSelector = map[string]string{"disk": "tape"}
	apply(t, s, tolerant, picky, impossible)
	got := map[string]string{}
	for _, p := range s.Snapshot().Pods {
		got[strings.SplitN(p.Name, "-", 2)[0]] += p.Spec.NodeName + " "
	}
	web := strings.Fields(got["web"])
	slices.Sort(web)
	got["web"] = strings.Join(web, " ")
	checkSame(t, "nodes", got, map[string]string{"web": "n1 special", "tolerant": "a-tainted ", "picky": "special ",
		"impossible": " "})

	// Pods of a node that goes away go with it; those of the Deployment come back elsewhere.
	if err := s.Delete("Node", "", "special"); err != nil {
		t.Fatal(err)
	}
	if _, ok := Get[*corev1.Pod](s, "default", "picky"); ok {
		t.Error("picky is still there")
	}
	for _, p := range s.Snapshot().Pods {
		if strings.HasPrefix(p.Name, "web-") && p.Spec.NodeName != "n1" {
			t.Errorf("%s is on %q", p.Name, p.Spec.NodeName)
		}
	}
}

func TestNamespaceDeletion(t *testing.T) {
	s := newTestStore(t, Config{}, "n1")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	d, svc := newDeployment("web", 2), newService("web", func(svc *corev1.Service) { svc.Spec.ClusterIP = "10.96.0.10" })
	d.Namespace, svc.Namespace = "shop", "shop"
	if err := s.Apply(svc); err == nil || !strings.Contains(err.Error(), `metadata.namespace: Not found: "shop"`) {
		t.Errorf("a Service without its namespace: %v", err)
	}
	apply(t, s, d, svc, ns) // the order in a manifest does not matter
	if got, _ := Get[*corev1.Namespace](s, "", "shop"); got.Labels["kubernetes.io/metadata.name"] != "shop" {
		t.Errorf("labels %v", got.Labels)
	}
	if err := s.Delete("namespaces", "", "shop"); err != nil {
		t.Fatal(err)
	}
	after := s.Snapshot()
	if n := len(after.Pods) + len(after.Services) + len(after.EndpointSlices) + len(after.Deployments); n != 0 ||
		len(after.Namespaces) != 2 {
		t.Errorf("%d objects and %d namespaces are left", n, len(after.Namespaces))
	}
	apply(t, s, newService("heir", func(svc *corev1.Service) { svc.Spec.ClusterIP = "10.96.0.10" }))
	if err := s.Delete("Namespace", "", "default"); err == nil {
		t.Error("the namespace default was deleted")
	}
}

func TestPodsKeepTheirSpec(t *testing.T) {
	s := newTestStore(t, Config{}, "n1", "n2")
	apply(t, s, newPod("p", "", app("web")))
	node := get[*corev1.Pod](t, s, "p").Spec.NodeName
	changed := newPod("p", "", app("db")) // labels and images may change, the node stays
	changed.Spec.Containers[0].Image = "web:2"
	apply(t, s, changed)
	if p := get[*corev1.Pod](t, s, "p"); p.Spec.NodeName != node || p.Labels["app"] != "db" ||
		p.Spec.Containers[0].Image != "web:2" {
		t.Errorf("pod %+v", p)
	}
	changed.Spec.Containers[0].Ports = nil
	if err := s.Apply(changed); err == nil || !strings.Contains(err.Error(),
		"spec: Forbidden: pod updates may not change fields other than") {
		t.Errorf("a pod with other ports: %v", err)
	}
	moved := newPod("p", map[string]string{"n1": "n2", "n2": "n1"}[node], nil)
	if err := s.Apply(moved); err == nil {
		t.Error("a pod moved to another node")
	}
	err := Update(s, "default", "p", func(p *corev1.Pod) { p.Status.Phase = "Running" })
	if err == nil || !strings.Contains(err.Error(), "changed with UpdateStatus") {
		t.Errorf("Update of a status: %v", err)
	}
	err = UpdateStatus(s, "default", "p", func(p *corev1.Pod) { p.Spec.Hostname = "x" })
	if err == nil || !strings.Contains(err.Error(), "for the status alone") {
		t.Errorf("UpdateStatus of a spec: %v", err)
	}
	err = UpdateStatus(s, "default", "p", func(p *corev1.Pod) {
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"},
			{IP: "10.0.0.2"}}
	})
	if err == nil || !strings.Contains(err.Error(),
		"status.podIPs[1]: Invalid value: \"10.0.0.2\": may specify no more than one IP for each IP family") {
		t.Errorf("two addresses of one family: %v", err)
	}
}

func TestStaleManifest(t *testing.T) {
	s := newTestStore(t, Config{})
	apply(t, s, newService("web"))
	read := get[*corev1.Service](t, s, "web").DeepCopy()
	apply(t, s, newService("web", func(svc *corev1.Service) { svc.Spec.Ports[0].Port = 81 }))
	if err := s.Apply(read); err == nil || !strings.Contains(err.Error(), "the object has been modified") {
		t.Errorf("a stale object: %v", err)
	}
	again := get[*corev1.Service](t, s, "web").DeepCopy()
	again.Spec.TrafficDistribution = ptr.To("PreferClose")
	apply(t, s, again)
	if err := s.Apply(newService("web"), newService("web")); err == nil ||
		!strings.Contains(err.Error(), `Service "default/web" is given twice`) {
		t.Errorf("the same Service twice: %v", err)
	}
}
