// Creates the replica set of compose.yaml's three servers, and the users of ../mongodb.md. Run in mongosh, connected to the first
// server from its own machine: MongoDB allows that until there is a user.
const fs = require("fs");
const members = ["mongo1:27017", "mongo2:27017", "mongo3:27017"];
const password = (user) => fs.readFileSync(`/run/secrets/mongodb-${user}`, "utf8").trim();
const admin = db.getSiblingDB("admin");

function authenticated() {
  try {
    return admin.auth("admin", password("admin")).ok === 1;
  } catch (e) {
    return false; // there is no user yet
  }
}

// primary waits until this server is the primary. It has the highest priority, so it becomes primary again after another one.
function primary() {
  for (let seconds = 0; !db.hello().isWritablePrimary; seconds++) {
    if (seconds === 120) throw new Error("this server is not the primary after two minutes");
    sleep(1000);
  }
}

// user creates a role with the rights to one database and a user with that role, or sets the user's password.
function user(name, database, role, actions) {
  const own = db.getSiblingDB(database);
  const privileges = [{resource: {db: database, collection: ""}, actions}];
  if (own.getRole(role) === null) own.createRole({role, roles: [], privileges});
  else own.updateRole(role, {privileges});
  if (own.getUser(name) === null) own.createUser({user: name, pwd: password(name), roles: [role]});
  else own.changeUserPassword(name, password(name));
}

if (!authenticated()) {
  try {
    rs.initiate({_id: "rs0", members: members.map((host, _id) => ({_id, host, priority: _id === 0 ? 2 : 1}))});
  } catch (e) {
    if (e.codeName !== "AlreadyInitialized") throw e; // it was broken off before there was a user
  }
  primary();
  admin.createUser({user: "admin", pwd: password("admin"), roles: ["userAdminAnyDatabase", "clusterAdmin"]});
  if (!authenticated()) throw new Error("the user admin cannot come in");
}
primary();
user("sidecar", "sluice", "sluiceSidecar",
  ["find", "insert", "update", "remove", "listCollections", "listIndexes", "createCollection", "createIndex"]);
user("controlplane", "controlplane", "sluiceControlPlane", ["find", "insert", "update", "remove", "createCollection"]);
print("the replica set and its users are there");
