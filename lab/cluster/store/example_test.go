// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
)

const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: nginx, image: nginx:1.14.2, ports: [{containerPort: 8080, name: http}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.80
  selector: {app: web}
  ports: [{port: 80, targetPort: http}]
`

func ExampleStore() {
	s := store.New(store.Config{})
	for _, name := range []string{"n1", "n2"} {
		if err := s.Apply(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			panic(err)
		}
	}
	objs, err := manifest.Decode("web.yaml", []byte(web))
	if err != nil {
		panic(err)
	}
	if err := s.Apply(objs...); err != nil {
		panic(err)
	}
	// What a kubelet would do: start the pods that are there now, and report.
	for _, p := range s.Snapshot().Pods {
		ip := netip.MustParseAddr(map[string]string{"n1": "10.244.1.2", "n2": "10.244.2.2"}[p.Spec.NodeName])
		if err := store.UpdateStatus(s, p.Namespace, p.Name, store.ReportRunning(true, ip)); err != nil {
			panic(err)
		}
	}
	svc, _ := store.Get[*corev1.Service](s, "default", "web")
	fmt.Println(svc.Spec.ClusterIP, svc.Spec.IPFamilies)
	for _, slice := range s.Snapshot().EndpointSlices {
		for _, e := range slice.Endpoints {
			fmt.Println(e.Addresses[0], *slice.Ports[0].Port, *e.Conditions.Ready)
		}
	}
	// Unordered output:
	// 10.96.0.80 [IPv4]
	// 10.244.1.2 8080 true
	// 10.244.2.2 8080 true
}
