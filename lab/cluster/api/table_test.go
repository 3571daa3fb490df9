// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

const tables = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// text returns a table as a person sees it: the columns of -o wide after "|"; ages, which depend on the clock, as "*".
func text(t *metav1.Table) string {
	var lines []string
	var head []string
	wide := -1
	for i, c := range t.ColumnDefinitions {
		if c.Priority > 0 && wide < 0 {
			wide = i
			head = append(head, "|")
		}
		head = append(head, c.Name)
	}
	lines = append(lines, strings.Join(head, " "))
	for _, r := range t.Rows {
		var cells []string
		for i, c := range r.Cells {
			if i == wide {
				cells = append(cells, "|")
			}
			if name := t.ColumnDefinitions[i].Name; name == "Age" || strings.HasSuffix(name, "Seen") {
				c = "*"
			}
			cells = append(cells, fmt.Sprint(c))
		}
		lines = append(lines, strings.Join(cells, " "))
	}
	return strings.Join(lines, "\n")
}

func TestTables(t *testing.T) {
	node := newNode("n1")
	node.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.7.11"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.36.0", KernelVersion: "6.1.0", Architecture: "amd64"}
	web := newService("web")
	web.Spec.ClusterIP = "10.96.0.80"
	web.Spec.Type = corev1.ServiceTypeNodePort
	web.Spec.Ports[0].NodePort = 30080
	lb := newService("lb")
	lb.Spec.ClusterIP, lb.Spec.Type = "10.96.0.81", corev1.ServiceTypeLoadBalancer
	lb.Spec.Ports[0].NodePort, lb.Spec.Selector = 30081, nil
	external := newService("ext")
	external.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
	pending := newPod("waiting", "none")
	pending.Spec.NodeName = ""
	pending.Spec.NodeSelector = map[string]string{"no": "node"}
	c := newClient(t, store.Config{Stack: lab.Dual}, node, web, lb, external, newPod("p", "web"), pending)
	c.run("p", "10.244.1.2")
	c.post("/apis/apps/v1/namespaces/default/deployments", strings.Replace(webDeployment, "app: web", "app: d",
		2)).want(201)
	c.post("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
		`{"metadata":{"name":"deny"},"spec":{"podSelector":{"matchLabels":{"app":"web"}}}}`).want(201)
	c.post("/apis/coordination.k8s.io/v1/namespaces/default/leases",
		`{"metadata":{"name":"l"},"spec":{"holderIdentity":"me"}}`).want(201)
	c.post("/api/v1/namespaces/default/events",
		`{"metadata":{"name":"e"},"involvedObject":{"kind":"Pod","name":"p"},"type":"Normal","reason":"Started","message":"it runs","source":{"component":"kubelet","host":"n1"}}`).want(201)
	c.accept = tables
	set := c.store.Snapshot().Objects(store.KindReplicaSet)[0].GetName()
	slice := c.store.Snapshot().EndpointSlices[0].Name
	tests := []struct{ path, want string }{
		{"/api/v1/nodes", "Name Status Roles Age Version | Internal-IP External-IP OS-Image Kernel-Version " +
			"Container-Runtime\n" +
			"n1 Ready control-plane * v1.36.0 | 192.168.7.11 <none> <unknown> 6.1.0 (amd64) <unknown>"},
		{services, "Name Type Cluster-IP External-IP Port(s) Age | Selector\n" +
			"ext ExternalName <none> example.com <none> * | <none>\n" +
			"lb LoadBalancer 10.96.0.81 <pending> 80:30081/TCP * | <none>\n" +
			"web NodePort 10.96.0.80 <none> 80:30080/TCP * | app=web"},
		{"/api/v1/namespaces/default/pods?fieldSelector=metadata.name=p",
			"Name Ready Status Restarts Age | IP Node Nominated Node Readiness Gates\n" +
				"p 1/1 Running 0 * | 10.244.1.2 n1 <none> <none>"},
		{"/api/v1/namespaces/default/pods?fieldSelector=metadata.name=waiting",
			"Name Ready Status Restarts Age | IP Node Nominated Node Readiness Gates\n" +
				"waiting 0/1 Pending 0 * | <none> <none> <none> <none>"},
		{"/api/v1/namespaces/default/endpoints/web", "Name Endpoints Age\nweb 10.244.1.2:8080 *"},
		{"/apis/discovery.k8s.io/v1/endpointslices", "Name AddressType Ports Endpoints Age\n" + slice +
			" IPv4 8080 10.244.1.2 *"},
		{"/api/v1/namespaces/default", "Name Status Age\ndefault Active *"},
		{"/apis/networking.k8s.io/v1/networkpolicies", "Name Pod-Selector Age\ndeny app=web *"},
		{"/apis/networking.k8s.io/v1/servicecidrs", "Name CIDRs Age\nkubernetes 10.96.0.0/16,fd00:10:96::/112 *"},
		{"/apis/coordination.k8s.io/v1/leases", "Name Holder Age\nl me *"},
		{"/apis/apps/v1/deployments", "Name Ready Up-to-date Available Age | Containers Images Selector\nweb 0/2 2 0 * | " +
			"main web:1 app=d"},
		{"/apis/apps/v1/replicasets", "Name Desired Current Ready Age | Containers Images Selector\n" +
			set + " 2 2 0 * | main web:1 app=d,pod-template-hash=" + strings.TrimPrefix(set, "web-")},
		{"/api/v1/events", "Last Seen Type Reason Object | Subobject Source Message First Seen Count Name\n" +
			"* Normal Started pod/p |  kubelet, n1 it runs * 1 e"},
		{"/apis/events.k8s.io/v1/events", "Last Seen Type Reason Object | Subobject Source Message First Seen Count Name\n" +
			"* Normal Started pod/p |  kubelet, n1 it runs * 1 e"},
	}
	for _, test := range tests {
		table := into[metav1.Table](c.get(test.path).want(200))
		if got := text(table); table.Kind != "Table" || got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.path, got, test.want)
		}
	}
}

func TestRowsHold(t *testing.T) {
	c := newClient(t, store.Config{}, newNode("n1"))
	c.accept = tables
	for policy, want := range map[string]string{
		"": `"kind":"PartialObjectMetadata"`, "Metadata": `"kind":"PartialObjectMetadata"`, "Object": `"kind":"Node"`,
		"None": `"object":null`,
	} {
		a := c.get("/api/v1/nodes?includeObject=" + policy).want(200)
		if !strings.Contains(string(a.body), want) {
			t.Errorf("%q: got %s, want %s", policy, a.body, want)
		}
	}
}

func TestMoreThanThree(t *testing.T) {
	if got := few([]string{"a", "b", "c", "d", "e"}); got != "a,b,c + 2 more..." {
		t.Errorf("got %s", got)
	}
}
