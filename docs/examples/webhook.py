"""An admission webhook: ConfigMaps without a label `team` are refused.

python webhook.py ADDRESS PORT prints the configuration to create, with the authority of its certificate, and serves.
"""

import datetime
import ipaddress
import json
import ssl
import sys
import tempfile
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Webhook(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        labels = request["object"]["metadata"].get("labels", {})
        response = {"uid": request["uid"], "allowed": "team" in labels}
        if not response["allowed"]:
            response["status"] = {"code": 403, "message": "a ConfigMap needs the label team"}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(review).encode())


address, port = sys.argv[1], int(sys.argv[2])
key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "team")])
now = datetime.datetime.now(datetime.UTC)
builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=30))
names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
builder = builder.add_extension(names, critical=False)
certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
server = ThreadingHTTPServer((address, port), Webhook)
with tempfile.NamedTemporaryFile() as pair:
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pair.write(certificate + key.private_bytes(serialization.Encoding.PEM, form, plain))
    pair.flush()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.name)
server.socket = context.wrap_socket(server.socket, server_side=True)
rule = {"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
webhook = {
    "name": "team.example.com",
    "clientConfig": {"url": f"https://{address}:{server.server_port}/", "caBundle": b64encode(certificate).decode()},
    "rules": [rule],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
api = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
print(json.dumps({**api, "metadata": {"name": "team"}, "webhooks": [webhook]}), flush=True)
server.serve_forever()
